"""The records that the stages of standing queries leave each other in topics, as JSON.

matched (NAME.matched) -> snapshots (NAME.snapshots), ended (NAME.ended) -> result (NAME.results)

They import no stage. The records of registered queries and of leases are with those that alone
write them, in :mod:`~headrace.queries.registry` and :mod:`~headrace.queries.instance`.
"""
