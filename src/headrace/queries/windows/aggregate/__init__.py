"""Adds up windows and ends them. No other stage depends on time.

An instance owns partitions of the matched topic. For each of them, one thread takes records and
ticks in their order, keeps the open windows in memory, and writes in transactions:

========== =======================================================================================
results    the results of a window, to the topic of ended windows, and the event clocks after them
ended      a publish marker: the results of a window are written
window     a snapshot of a window that has changed, with the offset that it covers
position   after the snapshots of all changed windows: the next offset, and the event clocks
========== =======================================================================================

Publish markers, snapshots and positions are in the partition of the snapshots topic with the number
of the matched partition. There is no other state: an instance that starts reads the snapshots, and
continues at the last position.

When windows end is decided in :mod:`~headrace.queries.windows.aggregate.closing`.

Guarantees:
- A window has one final result, after any crash. If the window ends by event time, the result is
  equal to that of a run without crashes; only ``percentile`` of more than 200 values may differ,
  within its bound. A window that ended by quiet time opens again with events that come more than
  an hour later, and then has another final result.
- A window that ended by event time has every event that came before the tick that ended it.
  Later events are counted as late, by query.
- If two instances take one partition, the earlier instance is fenced: it cannot write any more.
"""
