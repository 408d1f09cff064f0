"""Sends on each matching event within milliseconds: the real-time form of the match stage.

rules -> outgoing -> running_query -> emitter, with positions

Contract:

- **What.** Each event that a query with ``MATCHED EVENTS EMIT`` matches is a record of the topic of
  matched events: its key is the query id, its value the event as it is in its topic. Headers name
  the place of the event (``headrace-origin``), the revision of the query, and the offset of the
  topic of queries up to which queries were read. Events that can't be read, and events without an
  event time, match nothing; the pipeline that matches events for windows makes dead letters and
  figures of them.
- **Order.** The matched events of a partition are in one partition, in their order.
- **Delivery.** Exactly once as long as one process sends, because each start reads the end of the
  topic. A process that is cut off may send records again that the process in its place has sent.
- **Rules.** Each start reads the registry to its end. When the registry changes, the Spark query
  ends, and another continues after the last event that was sent, or at the last committed position.
  So a new standing query begins at one offset of each partition, and a cancelled one ends at one.
- **Proof.** Positions are committed with the queries that events are matched with, and with the
  offset at which these queries begin: ``headrace reconcile --recount`` finds the matches again.
"""
