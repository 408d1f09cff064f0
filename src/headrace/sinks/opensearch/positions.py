"""What a cluster records of the pipelines that write to it: one document for each of them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

import msgspec

from headrace.errors import SinkError, SinkUnavailableError
from headrace.sinks.api import Transaction
from headrace.sinks.opensearch.client import EXISTS, NAME, Client, ClusterNodes

INDEX = "headrace-positions"
_NEW_INDEX = {
    "settings": {"index": {"hidden": True, "number_of_shards": 1, "auto_expand_replicas": "0-1"}},
    "mappings": {
        "dynamic": "strict",
        "properties": {"versions": {"type": "object", "enabled": False}},
    },
}
_CONFLICT, _NOT_FOUND = 409, 404
_DELAYS_SECONDS = (0.2, 1.0, 3.0)


@dataclass(frozen=True)
class RecordedPositions:
    """The document of a pipeline, as it was read.

    Attributes:
        versions: by application id, the number recorded.
        condition: query by which it is written only if it is still so.
    """

    versions: Mapping[str, int] = field(default_factory=dict)
    condition: str = "op_type=create"


class OpenSearchPositions:
    """The document of a pipeline and an index, read as it is now and not as of the last refresh.

    Args:
        cluster: where it is.
        index: that the pipeline writes to.
        pipeline: its name.
    """

    uri = f"{NAME}, index {INDEX}"

    def __init__(self, cluster: ClusterNodes, index: str, pipeline: str) -> None:
        self._client = Client(cluster)
        self._path = f"{INDEX}/_doc/{quote(f'{index} {pipeline}', safe='')}"

    def versions(self, app_ids: Iterable[str]) -> dict[str, int]:
        """Returns the number recorded for each application id.

        Raises:
            SinkUnavailableError: if the cluster does not answer.
        """
        known = self.recorded().versions
        return {name: known[name] for name in app_ids if name in known}

    def restored(self, writer: Mapping[str, object]) -> None:  # noqa: ARG002
        """Returns None: nothing is known of snapshots that were restored."""
        return

    def recorded(self) -> RecordedPositions:
        """Returns the document; an empty one where there is none."""
        answer = self._client.ask("GET", self._path)
        if answer.status == _NOT_FOUND:
            return RecordedPositions()
        document = answer.json()
        condition = f"if_primary_term={document['_primary_term']}&if_seq_no={document['_seq_no']}"
        return RecordedPositions(document["_source"]["versions"], condition)

    def create_index(self) -> None:
        """Creates the index, unless it is there."""
        if self._client.ask("GET", INDEX).status != _NOT_FOUND:
            return
        answer = self._client.ask("PUT", INDEX, msgspec.json.encode(_NEW_INDEX))
        if EXISTS not in answer.body:
            answer.json()

    def record(self, transaction: Transaction) -> bool:
        """Records a batch; False: it was recorded before.

        Raises:
            SinkError: if something else is recorded than the transaction expects.
            SinkUnavailableError: if it is not known whether it is recorded.
        """
        for attempt, delay in enumerate((*_DELAYS_SECONDS, None)):
            recorded = self.recorded()
            if _is_at(recorded, transaction.versions):
                # The attempt before may have gone through although its answer was lost.
                return attempt > 0
            if not _is_at(recorded, transaction.expected):
                break
            if self._is_written(recorded, transaction.versions, is_last=delay is None):
                return True
            time.sleep(delay or 0)
        reason = "another driver has recorded other positions of its pipeline meanwhile"
        raise SinkError(self.uri, reason)

    def _is_written(
        self, recorded: RecordedPositions, versions: Mapping[str, int], *, is_last: bool
    ) -> bool:
        """Writes the document unless it has changed; False: that, or the answer is lost."""
        body = msgspec.json.encode({"versions": {**recorded.versions, **versions}})
        try:
            answer = self._client.ask("PUT", f"{self._path}?{recorded.condition}", body)
            if answer.status != _CONFLICT:
                answer.json()
                return True
        except SinkUnavailableError:
            if is_last:
                raise
        return False

    def close(self) -> None:
        """Closes the connections."""
        self._client.close()


def _is_at(recorded: RecordedPositions, versions: Mapping[str, int | None]) -> bool:
    return all(recorded.versions.get(name) == at for name, at in versions.items())
