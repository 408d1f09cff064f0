"""Workers: records processed one at a time, in lanes that share a consumer.

The rooms: this folder holds the declaration and the instance that runs it; ``tasks/`` what users
write and name (tasks, records, policies, partitioners); ``consumer_group/`` reads and commits,
``references/`` hold what tasks look up, ``state/`` what they keep, ``lanes/`` process,
``failures/`` end what failed, ``monitoring/`` measures.

More cores are more instances (``placement/``): decision 44. Why tasks share one event loop:
decision 11; why a send does not stop a lane: decision 16.

The way of a record through an instance, all on its event loop but for (1) and ordinary functions.
*Take* gets records from Kafka, *put* hands one to the next place:

1. taken: ``GroupConsumer.read`` > ``.take`` > ``Subscription.take``, on a thread.
2. understood: ``ConsumedRecord.of``: a record of a retry topic has its first topic and offset.
3. put into its lane: ``PartitionSet.put`` > ``AssignedPartition.put`` >
   ``WorkerPartitioner.subpartition`` > ``Lane.put``; ``Backpressure.on_enqueued`` counts its
   bytes, and adds the partition to ``Pauses`` where they are too many, which (1) reads.
4. its turn: ``Lane._run`` > ``_step`` > ``_next`` > ``_accepts``; if the task does not accept it,
   or it is not due, the lane waits in ``BlockedLanes``.
5. processed: ``Lane._handle`` > ``_attempt`` > ``BoundTask.process`` > the user's code, in
   ``TaskThreads`` where it is an ordinary function; what it sends goes through ``Sender`` and is
   confirmed before the record is done.
6. failed: ``Lane._failed`` > ``retry_delay`` and back to (5), or ``Failures.end``: a retry
   topic (1), a dead letter, skipped, or the instance ends.
7. done: ``Lane._finish`` > ``PartitionSet.finished`` > ``PartitionOffsets.finish`` >
   ``Backpressure.on_completed``.
8. committed: ``GroupConsumer.commit`` > ``AssignedPartition.commit`` > ``Subscription.commit``: the
   first offset that is not done, and in the metadata what is done beyond it.
"""

from headrace.lazy_names import lazy_names

# Declaring a worker needs no Kafka client, and the help of commands needs no worker.
__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
