"""Events that match, within milliseconds: the real-time form of the match stage.

rules -> outgoing -> running_query -> emitter, with positions

Contract:

- **What.** Each event that a query with ``MATCHED EVENTS EMIT`` matches is a record of the topic of
  matched events: its key is the query id, its value the event as it is in its topic. Headers say
  where the event is (``headrace-origin``), and which revision of the query it matches, as of which
  offset of the topic of queries. Events that can't be read, and those without an event time, match
  nothing: dead letters and figures are those of the pipeline that counts windows.
- **Order.** The matched events of a partition are in one partition, in their order.
- **Delivery.** Exactly once, by reading the end of the topic at each start, as long as one process
  sends; a process that is cut off may send some again, beside the one that has taken its place.
- **Rules.** A start reads the registry to its end. A changed registry ends the query, and another
  one goes on behind the last event that was sent, or the last position that was committed. So a new
  query counts from one offset of each partition on, and a cancelled one to the same.
- **Proof.** Positions are committed with the queries that events are matched with, and with the
  offset from which on they are: ``headrace reconcile --recount`` finds the same matches once more.
"""
