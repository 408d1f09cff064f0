"""Sink ``kafka``: events of another topic of the project's cluster.

    Kafka(enriched)
    Kafka(enriched, guarantee=Guarantee.EXACTLY_ONCE)

Each row is one event of the topic's class, keyed and partitioned as the topic declares: JSON with
the class's fields in their order, or the topic's other format by its schema in the registry. The
columns are the class's fields, at every depth. A raw topic takes rows with a column ``value`` and,
where there is one, ``key``. The headers of a record:

========= =========================================================================================
event-id  the event's id, where the topic declares one: the same in every copy of the event
origin    ``topic/partition:offset`` of the record that the row came from, with ``#index`` after it
          where that is an envelope and the row its event with that index; not after steps that
          drop the columns ``_topic``, ``_partition`` and ``_offset``. After steps, only the column
          ``_event_index`` distinguishes events of an envelope
========= =========================================================================================

A row that no reader of the topic would take (a null in a field that can't be null, no key, a text
in a field of type ``Any`` that is not one JSON value, a time beyond the year 9999, an event time
outside the topic's bounds by the clock of the task), one that the topic would hold otherwise
(microseconds in a field of type ``EpochMillis``) and one that is too large before it is compressed
become dead letters of the source's topic.

At least once, the default (:mod:`headrace.sinks.kafka.writer`): tasks send, all at the same time.

- *Delivery.* A task's rows are on all in-sync replicas before its batch is committed; a batch that
  is repeated after a crash is sent again. Consumers drop duplicates by ``event-id`` or ``origin``,
  which are the same in both copies.
- *Order.* Rows of one task keep their order in each partition, also through retries: no batch is
  larger than the topic's ``max.message.bytes``. If brokers take less than is declared and refuse a
  batch, its rows are sent again with those after them. A task writes the rows of one topic
  partition in the order of their offsets where no step is in between and the source has no
  ``min_tasks``.
- *Positions* are not recorded, so ``checkpoint reset --to table`` has no place to start at, and a
  checkpoint that was restored from an older copy repeats what came after it.

Exactly once (:mod:`headrace.sinks.kafka.exactly_once`): the driver sends.

- *Delivery.* For readers of committed records, a batch is there once, all of it or nothing: its
  records and its positions are one transaction. They see it once the brokers have written its
  markers, shortly after the commit. Positions are in the compacted topic ``TOPIC.positions``, which
  the first start creates.
- *Order.* Records of a batch are sent in the order of tasks, and of rows in each. With one source
  and no steps, rows of one topic partition are in the order of their offsets, also with
  ``min_tasks``. Batches follow one another.
- *A crash* repeats the reading of the batch, and none of its records. Where the outcome of a
  transaction is unknown, the next driver ends it and reads in the positions what it was. A
  transaction that a killed driver left open ends after a minute at most: until then, a start waits
  for it, and readers of committed records wait at it.
- *Fenced* is every earlier driver of the pipeline, also one that was frozen: brokers refuse its
  transaction. It reads the positions again, and fails if another driver has recorded others.
- *Rows* of a batch pass through the driver, compressed: ``BatchLimits.max_records`` bounds them. A
  transaction that takes longer than a minute is aborted by the brokers.
- *A record that only the brokers refuse*, since their topic takes less than is declared, ends the
  pipeline with the name of the setting; nothing of the batch is committed.
- *Not covered:* readers of uncommitted records see records of aborted transactions. Kafka can lose
  the mark that a transaction was committed where its only coordinator is killed at that moment
  (decision 28), and a topic that is deleted and created again lacks rows that the positions name.
"""
