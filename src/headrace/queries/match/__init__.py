"""Finds the queries that each event matches. This stage does not depend on time.

A pipeline with the sink :class:`~headrace.queries.match.sink.MatchQueries` is such a stage. Each of
its tasks holds all live queries of the topic, as of the batch's position in the topic of queries,
and sends what the events of its part of the batch add to windows:

=================== ==============================================================================
shape               what queries have in common that differ only in constants
rule                a query that is matched: its shape, and its constants
index               the rules that compare an expression with constants, by constant; each rule is
                    in the index whose values fewest events have, as observed
window partial      what one task of a batch adds to one window of one query, by group
=================== ==============================================================================

Guarantees:
- Exactly once: what a batch adds, its ticks with the event clock, and the pipeline's positions are
  in one transaction. A repeated batch has the queries that it had before.
- A query takes effect in the first batch that is planned after its registration: for all tasks at
  the same offset of each partition.
"""
