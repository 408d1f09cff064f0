"""The sinks that are installed: headrace's own, and those that packages bring by an entry point.

    [project.entry-points."headrace.sinks"]
    sqlite = "headrace_sqlite:Sqlite"

The name is the sink's ``kind``: its table in headrace.toml is ``[sinks.sqlite]``.
"""

from __future__ import annotations

from importlib.metadata import entry_points

from headrace.sinks.api import Sink
from headrace.sinks.bigquery.declaration import BigQuery
from headrace.sinks.kafka.declaration import Kafka
from headrace.sinks.lake.declaration import Lake
from headrace.sinks.opensearch.declaration import OpenSearch
from headrace.sinks.postgres.declaration import Postgres
from headrace.sinks.profiles.declaration import Profiles

GROUP = "headrace.sinks"
_OWN: tuple[type[Sink], ...] = (BigQuery, Kafka, Lake, OpenSearch, Postgres, Profiles)


def installed_kinds() -> frozenset[str]:
    """Returns the kinds of all installed sinks, without importing any."""
    return frozenset({*entry_points(group=GROUP).names, *(sink.kind for sink in _OWN)})
