"""Figures of a pipeline that writes to OpenSearch."""

from __future__ import annotations

from headrace.metrics import Metric

REPEATED = "opensearch_repeated_rows"
OLDER = "opensearch_older_rows"
RESENT = "opensearch_resent_rows"

OPENSEARCH_METRICS = (
    Metric(
        REPEATED,
        "rows",
        "rows whose document was there already, by its id: it stays as it is",
        "as many as a batch after a restart is normal; rising: a producer sends events again",
        is_counter=True,
    ),
    Metric(
        OLDER,
        "rows",
        "rows of `UPSERT` that are older than the document of their key, or than another row of it",
        "rising while nothing is read again: events of a key come out of order",
        is_counter=True,
    ),
    Metric(
        RESENT,
        "rows",
        "rows that were sent again, since OpenSearch was too busy for them (429) or failed (5xx)",
        "rising fast: the cluster takes less than the pipeline reads; add data nodes or shards",
        is_counter=True,
    ),
)
