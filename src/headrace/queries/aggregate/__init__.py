"""The stage that adds up windows and ends them: time is here alone.

An instance owns partitions of the matched topic. For each of them, one thread takes records and
ticks in their order, keeps the open windows in memory, and writes in transactions:

========== =======================================================================================
results    those of a window, into the topic of ended windows, and behind them how far time is
ended      a marker: the result of a window is written
window     a snapshot of a window that has changed, with the offset that it covers
position   behind the snapshots of all windows that have changed: how far, and the clocks
========== =======================================================================================

Markers, snapshots and positions are in the partition of the snapshots topic with the number of the
matched partition. There is no other state: an instance that starts reads the snapshots, and goes on
at the last position.

Times and the ways in which windows end are in :mod:`~headrace.queries.aggregate.closing`.

Guarantees:
- A window has one final result, after any crash; it is the one that a run without crashes has,
  where it ends by event time; ``percentile`` of more than 200 values may differ within its bound.
  One that ended by quiet time begins anew with events that come more than an hour after that, and
  has another final result.
- A window that ended by event time has every event that came before the tick that ended it. What
  comes later is counted as late, by query.
- Two instances of one partition: the earlier one can write no more.
"""
