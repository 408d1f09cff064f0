"""Sink ``profiles``: profiles of users, in Redis or Cassandra, which a site reads as it serves.

    Profiles(
        "users",
        key="user_id",
        ttl=timedelta(days=30),
        fields=("country", "device"),
        lists={
            "views": Latest(200, where={"kind": "view"}),
            "clicks": Latest(200, where={"kind": "click"}),
        },
        forget={"kind": "forget"},
        event_id="event_id",
    )

A profile has *fields*, each with the newest value of a column, and *lists* of the latest events.
The address of the store is in headrace.toml; its scheme says which database it is::

    [sinks.profiles]
    url = "redis://:${PASSWORD}@cache/0"  # or "cassandra://user:${PASSWORD}@node1,node2/keyspace"

**A profile is a function of the rows that were written and of the time.** Order, repetitions and
the number of writers do not change it. So a batch may be rewritten, a topic may be reread
from its start, and any number of pipelines and drivers may write to one store at the same time.

========================== =======================================================================
what                       is
========================== =======================================================================
a *live* row               one whose event time is less than ``ttl`` ago and after the newest
                           event time of the rows that forget its user
a field                    the value of the live row with the greatest version among those in which
                           the column is not null. The version is the event time; of equal times,
                           the greater pair of event id and value, as the bytes of its JSON
a list                     the ``max_entries`` live events with the greatest event time; of equal
                           times, those with the greater id, as bytes. It holds an event once: of
                           several rows with one id the one with the greatest event time; of equal
                           times, the greater JSON
a row that forgets         meets ``forget``; or, with ``on_null``, is of a record without a value,
                           with its key as the user and its timestamp as the event time. It
                           removes the rows of its user up to its own event time, of every
                           pipeline, whenever they come; it sets no field and is in no list
the end of a profile       ``ttl`` after the newest event time of its fields, its entries and the
                           rows that forget
========================== =======================================================================

Guarantees:
- At least once, without a trace of repeated rows. Tasks write to the store, and readers see rows of
  a batch before its commit. The rows of one user that a task writes at once are merged in the task,
  and go in together: a reader sees all of them or none. With more than a thousand entries of a
  user, in Cassandra also with more than 6 MiB, they go in by parts.
- The clock is that of Redis, or of a node of Cassandra, which each connection asks every ten
  seconds at most. A replay of old rows prolongs no profile, since the end is computed
  from event times: rows that are not live any more are dropped, and counted in
  ``profile_expired_rows``.
- A row that forgets leaves a marker until its own ``ttl`` has passed. Rows before it that come
  later, such as those of a topic that is read again, are dropped.
- What the store loses, it does not restore: a replica of Redis that takes over lacks
  the last writes, with ``maxmemory-policy`` other than ``noeviction`` Redis removes profiles and
  markers, and nodes of Cassandra that are killed may lack what they have taken in the last 100 ms,
  unless another replica has it. ``headrace reprocess``, or a reset to ``earliest``, writes them
  again.

========================================= =====================================================
a row with                                gets
========================================= =====================================================
null, an empty text or more than 1,024    a dead letter, ``bad-key``
bytes as its key
no event time, or no event id where       a dead letter, ``missing-value``
``event_id`` is declared
an event time before 1827 or after 2112,  a dead letter, ``wrong-value``
a time that Python does not know in a
column that is used
a field or an entry of more than 64 KiB   a dead letter, ``row-too-large``
null in a column of ``fields``            the field stays as it is
null in a column of ``where``, ``forget`` no match
an event time ``ttl`` ago or more         dropped, and counted
an event time in the future               taken: it is the newest until its time has come. The
                                          topic's ``latest_ahead`` rejects such events; event times
                                          that steps compute are not checked
========================================= =====================================================

Without ``event_id``, an event is known by its event time and its values in the list: two views of
one item in the same microsecond are one.

**In Redis**, the keys of a user are in one slot of a cluster:

======================================= ========== ==============================================
key                                     type       content
======================================= ========== ==============================================
``headrace:{STORE:USER}``               hash       field: ``EVENT_TIME_US ["EVENT_ID", VALUE]``;
                                                   ``@newest``, ``@forgotten``: event times in
                                                   microseconds; ``@lists``: names of lists
``headrace:{STORE:USER}:LIST``          sorted set event ids by event time in microseconds
``headrace:{STORE:USER}:LIST:entries``  hash       JSON of an entry by event id
======================================= ========== ==============================================

Programs of a site may read these keys: ``ZREVRANGE`` and ``HMGET`` give the latest entries. Each
key has an expiry. Between it and the last write, rows that are not live may still lie there: a
reader leaves out what has an event time of ``ttl`` ago or more, as ``Project.profile`` does.

A user takes some 250 bytes of Redis 6.2, 30 and its texts for each field, 400 for each list, and
for each entry 130, its JSON and twice its id: 55 KB for 200 entries with 100 bytes of JSON.

**In Cassandra**, all rows of a user are one partition of the table ``headrace_profiles``:

=========================== ======================================================================
column                      content
=========================== ======================================================================
``store``, ``user``         the partition
``kind``, ``name``          ``field`` and its name, ``entry`` and its list, or ``forgotten``
``at_us``                   event time in microseconds, the greatest first
``digest``                  of ``event_id``, ``json`` and ``max_entries``
``event_id``                of an entry
``json``                    ``["EVENT_ID", VALUE]`` of a field, the values of an entry
``max_entries``             how many the list keeps: what its newest entry says, counts
=========================== ======================================================================

Rows are added, never changed: of one name, those with greater versions count. A reader leaves out
what has an event time of ``ttl`` ago or more, or up to that of a row ``forgotten``, and entries
beyond ``max_entries``; such rows may still lie there. A row expires a minute after it is not live
any more. Timestamps of writes are event times, so that deletions take older rows that come later.

What it does not do: record positions, so ``checkpoint reset --to table`` has no place to start at;
keep what lists have trimmed; replace an entry or field of older code by one with the same event
time and id whose JSON is smaller; connect to a Redis Cluster.
"""
