"""The stage that finds the queries of each event; it knows nothing of time.

A pipeline with the sink :class:`~headrace.queries.match.sink.MatchQueries` is one such stage. Its
tasks hold every live query of the topic, as far as the batch's position in the topic of queries,
and send what their events add to windows:

=================== ==============================================================================
shape               what queries that differ in constants alone have in common
rule                one query: its shape, and its constants
index               the value of an expression, and the rules that ask for it: each rule is in the
                    index of the one expression that selects most, as observed
window partial      what one task's part of a batch adds to one window of one query, by group
=================== ==============================================================================

Guarantees:
- Exactly once: what a batch adds, the ticks with the clock of events, and the pipeline's positions
  are one transaction. A batch that is repeated has the queries that it had before.
- A query counts from the first batch that was planned after its registration: for all tasks from
  the same offset of each partition on.
"""
