"""Sink ``kafka``: events of another topic of the project's cluster.

    Kafka(enriched)

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

Guarantees:
- At least once. A task's rows are on all in-sync replicas before its batch is committed; a batch
  that is repeated after a crash is sent again. Consumers drop duplicates by ``event-id`` or
  ``origin``, which are the same in both copies.
- Order: rows of one task keep their order in each partition, also through retries: no batch is
  larger than the topic's ``max.message.bytes``. If brokers take less than is declared and refuse a
  batch, its rows are sent again with those after them. A task writes the rows of one topic
  partition in the order of their offsets where no step is in between and the source has no
  ``min_tasks``.
- A row that no reader of the topic would take (a null in a field that can't be null, no key, a
  text in a field of type ``Any`` that is not one JSON value, a time beyond the year 9999, an event
  time outside the topic's bounds by the clock of the task), one that the topic would hold otherwise
  (microseconds in a field of type ``EpochMillis``) and one that is too large before it is
  compressed become dead letters of the source's topic.

What it does not do: record positions, so ``checkpoint reset --to table`` has no place to start at,
and a checkpoint that was restored from an older copy repeats what came after it.
"""
