"""An instance of ``aggregate`` and ``answer``: one process, which owns the partitions of a slot.

=================== ==============================================================================
lease holder        claims and renews the lease on partitions, on a thread of its own
watchdog            (of ``service``) watches whether the loop hangs; then the lease is not renewed
instance            the loop: takes the records of all its partitions, on one thread
owned partition     the windows and results of one partition, and its transactions
catch up            keeps windows open until the matched records that came before are taken
restoring           reads the snapshots with which a partition starts
starts              finds the offsets at which it continues, also if records were deleted
topic ends          fetches the end offsets of topics of events, on a thread for each
reader check        checks that the reader still receives records of each partition
quiet               advances the event clocks of idle topics
=================== ==============================================================================
"""
