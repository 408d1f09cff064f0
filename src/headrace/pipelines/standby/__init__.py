"""A driver that waits, warm, to take over a pipeline: the contract of ``headrace run --standby``.

Drivers of one pipeline that are started with ``--standby`` have one lease, in the compacted topic
``headrace.<pipeline>.leases`` (:mod:`headrace.service.leases`). The one that holds it is *active*
and runs the pipeline. The others are *standby*.

- **Warm.** A standby has its Spark session. It rehearses: the pipeline's own query reads a few
  records of the topic into a table in a folder of its own, which is deleted. It does so again every
  45 s, since Spark ends Python workers that are idle for a minute. It never opens the sink: opening
  one may end what the active driver has begun there.
- **Death of the active.** On one machine the kernel frees the lock of a process that has died. The
  standby takes that lock, whose file names the lease, and ends the lease before it expires. On
  other machines it expires three seconds after its last renewal; it is renewed twice a second.
- **Handover.** At SIGTERM, or on request (:mod:`.drivers`), the active ends its batch, begins no
  further one, and releases the lease; the standby claims it at its next read, and starts. One that
  was requested claims nothing for three seconds, and is a standby.
- **Pauses.** The lease is renewed by a thread of the driver's Python process. A pause of the JVM,
  of its garbage collector too, does not lose it, until the loop that watches the JVM has hung for
  five minutes. A process that is frozen for three seconds loses it.
- **Two never write.** A driver looks whether its lease is valid before a batch writes dead letters
  and before the sink's commit. One that is frozen between that look and the commit is refused by
  the sink: its transaction expects the position before the batch (:mod:`headrace.sinks.api`).
- **Unreachable brokers.** The active can't renew its lease: batches wait with their commit until it
  has. If a standby's claim comes first when the brokers are back, that takes over.
"""
