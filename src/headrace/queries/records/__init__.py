"""The JSON records of the topics between the stages of standing queries.

matched (NAME.matched) -> snapshots (NAME.snapshots), ended (NAME.ended) -> result (NAME.results)

These modules import no stage. The records of registered queries and of leases are in the packages
that alone write them, :mod:`~headrace.queries.registry` and
:mod:`~headrace.queries.windows.instance`.
"""
