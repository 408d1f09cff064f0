"""Indices of one node of OpenSearch."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from bench.cluster import WORK, Broker
from bench.events import BEGIN, SPAN
from bench.peers import opensearch
from bench.peers.contest import HEAP_MB
from bench.peers.opensearch import Node
from bench.sink_targets import COLUMNS, KEY, TIME, Target
from headrace.runtime.java.installation import Java

_FIELDS = {
    "text": "keyword",
    "timestamptz": "date",
    "bigint": "long",
    "boolean": "boolean",
    "double precision": "double",
}
_CLUSTER = {"persistent": {"cluster.routing.allocation.disk.threshold_enabled": False}}
IDS_A_REQUEST = 50_000


@dataclass(frozen=True)
class IndexTarget(Target):
    """Indices with a field for each field of the events, which all systems find there."""

    node: Node

    @property
    def database_pid(self) -> int:
        """The node's process."""
        return self.node.pid

    @property
    def settings(self) -> Mapping[str, Mapping[str, str]]:
        """The node's URL."""
        return {"opensearch": {"url": self.node.url}}

    @property
    def versions(self) -> Mapping[str, str]:
        """The node's, and that of the rival's client."""
        number = self._call("GET", "")["version"]["number"]
        return {"OpenSearch": number, "opensearch-py": version("opensearch-py")}

    def prepare(self) -> None:
        """Has the node take documents where the disk is nearly full, too."""
        self._call("PUT", "_cluster/settings", _CLUSTER)

    def create(self, name: str) -> None:
        """Makes an index; settings are OpenSearch's own."""
        fields = {column: {"type": _FIELDS[kind]} for column, kind in COLUMNS.items()}
        self._call("PUT", name, {"mappings": {"dynamic": "strict", "properties": fields}})

    def event_ids(self, name: str) -> tuple[int, int]:
        """Counts them; a document counts if its time is one of the events'."""
        self._call("POST", f"{name}/_refresh")
        times = {"gte": BEGIN.isoformat(), "lt": (BEGIN + SPAN).isoformat()}
        counted = self._call("POST", f"{name}/_count", {"query": {"range": {TIME: times}}})
        return int(counted["count"]), sum(self._distinct(name))

    def remove(self, name: str) -> None:
        """Deletes the index."""
        self._call("DELETE", name)

    def _distinct(self, name: str) -> Iterator[int]:
        """Yields how many ids each page of them has."""
        path = f"{name}/_search?filter_path=aggregations.ids.after_key,**.buckets.doc_count"
        ids = {"size": IDS_A_REQUEST, "sources": [{KEY: {"terms": {"field": KEY}}}]}
        after: dict[str, Any] = {}
        while True:
            body = {"size": 0, "aggs": {"ids": {"composite": ids | after}}}
            found = self._call("POST", path, body).get("aggregations", {}).get("ids", {})
            yield len(found.get("buckets", ()))
            if "after_key" not in found:
                return
            after = {"after": found["after_key"]}

    def _call(self, method: str, path: str, body: object = None) -> Any:
        encoded = None if body is None else json.dumps(body).encode()
        with closing(self.node.client()) as client:
            return client.call(method, f"/{path}", encoded)


@contextmanager
def opened_node(_: Broker, java: Java) -> Iterator[IndexTarget]:
    """A node; gone when the block ends."""
    node = Node(opensearch.prepare(java), WORK / "opensearch", HEAP_MB)
    try:
        target = IndexTarget(node)
        target.prepare()
        yield target
    finally:
        node.stop()
