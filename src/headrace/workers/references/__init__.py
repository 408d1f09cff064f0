"""References: topics that a worker's tasks look values up in, as tables in memory.

=========== ====================================================================================
declared    ``references={"accounts": accounts}``: compacted topics, or topics with a retention. A
            function takes them by name, a class has ``self.references["accounts"]``
table       the newest record of each key, of all partitions, in every instance. All records of a
            key must be in one partition. Records without a key are left out
ready       before the instance enters the worker's lifespan and joins its group, each reference was
            read to the end that it had: no record is processed before. A read that gets no record
            for a minute ends the start, and so does a topic that does not exist
threads     each reference is read by a thread of its own (``kafka/table``), which also decodes its
            records. Tasks only look up; that takes no lock, and is allowed on any thread
version     a task gets :class:`~headrace.workers.References` that never change: all values as of
            one moment. A function gets those of the moment at which the attempt starts, a further
            attempt newer ones. A class gets the newest at each access of ``self.references``, and
            may keep what it got. Nothing holds between two references, or between a reference and
            the records that are processed: one that is written before a record may be read after it
event       an instance of the topic's event class, read as the events of workers are, but for the
            bounds of the event time; of a topic without event class, the bytes of the value
bad record  what is no event counts as a tombstone: its key has no value, not even its former one.
            The log names it, and ``rejected_references`` counts it
tombstone   deletes its key
retention   a record that is deleted by age stays in the table until the topic is read again
recreated   a topic that was deleted and created again, or has more partitions, is read from its
            first offset again, which is noticed within seconds; one that was cut, when the client
            notices it. Until the end is reached, tasks get the table as it was before, so that no
            key returns to an older value
unreachable brokers, a topic that is deleted, a schema registry that does not answer: tasks continue
            with what was read, and the rest is read later. ``references_behind`` counts the
            references of which that is so, and those that are read again
memory      the events of all keys as objects of Python, in every instance, and twice while a topic
            is read again. Keys and values as they are in the topics may have ``reference_bytes`` in
            all; more ends the instance, which no restart helps
a crash     nothing is stored: each start reads the topics from their first offset
instances   of ``--processes N`` and ``--on spark`` each have tables of their own. A change reaches
            them at slightly different moments
=========== ====================================================================================
"""
