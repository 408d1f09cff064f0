"""What a cluster records of the pipelines that write to it: one document for each of them."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

import msgspec

from headrace.errors import SinkError, SinkUnavailableError, TableMismatchError
from headrace.runtime.retrying import retry
from headrace.sinks.api import Transaction
from headrace.sinks.opensearch.answers import (
    MAPPINGS,
    POSITIONS,
    SETTINGS,
    WRITTEN,
)
from headrace.sinks.opensearch.client import EXISTS, NAME, Client, ClusterNodes
from headrace.sinks.opensearch.mapping import KEPT, missing_fields, unfit_fields

INDEX = "headrace-positions"
_FIELDS = {"versions": KEPT, "writer": KEPT, "index_uuids": KEPT}
_NEW_INDEX = {
    "settings": {"index": {"hidden": True, "number_of_shards": 1, "auto_expand_replicas": "0-1"}},
    "mappings": {"dynamic": "strict", "properties": _FIELDS},
}
_CONFLICT = 409
_NO_INDEX = b"index_not_found_exception"
_DELAYS_SECONDS = (0.2, 1.0, 3.0)


@dataclass(frozen=True)
class PositionsDocument:
    """The document of a pipeline, as it was read.

    Attributes:
        versions: by application id, the number recorded.
        condition: query by which it is written only if it is still so.
        writer: who has written it; None: there is no document.
        index_uuids: of the index that has the rows, as :meth:`OpenSearchPositions.uuids_of_index`
            returns them; None: they are not known.
        has_index: whether the index of the documents of all pipelines exists.
    """

    versions: Mapping[str, int] = field(default_factory=dict)
    condition: str = "op_type=create"
    writer: str | None = None
    index_uuids: str | None = None
    has_index: bool = True


class OpenSearchPositions:
    """The document of a pipeline and an index, read as it is now and not as of the last refresh.

    Args:
        cluster: where it is.
        index: that the pipeline writes to.
        pipeline: its name.
    """

    uri = f"{NAME}, index {INDEX}"

    def __init__(self, cluster: ClusterNodes, index: str, pipeline: str) -> None:
        self._client, self._index = Client(cluster), index
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

    def recorded(self) -> PositionsDocument:
        """Returns the document; an empty one where there is none."""
        answer = self._client.ask("GET", self._path)
        if answer.is_missing():
            return PositionsDocument(has_index=_NO_INDEX not in answer.body)
        stored = answer.decoded(POSITIONS)
        condition = f"if_primary_term={stored.primary_term}&if_seq_no={stored.seq_no}"
        source = stored.source
        return PositionsDocument(source.versions, condition, source.writer, source.index_uuids)

    def create_index(self) -> None:
        """Creates the index, unless it exists.

        Raises:
            SinkError: if it exists with fields that the server has guessed.
        """
        answer = self._client.ask("GET", f"{INDEX}/_mapping")
        if answer.is_missing():
            answer = self._client.ask("PUT", INDEX, msgspec.json.encode(_NEW_INDEX))
            if EXISTS not in answer.body:
                answer.check_acknowledged()
            return
        for index in answer.decoded(MAPPINGS).values():
            fields = index.mappings.get("properties", {})
            for clause in unfit_fields(_FIELDS, fields):
                raise SinkError(self.uri, f"{clause}: something else has created the index")
            if missing := missing_fields(_FIELDS, fields):
                body = msgspec.json.encode({"properties": missing})
                self._client.ask("PUT", f"{INDEX}/_mapping", body).check_acknowledged()

    def uuids_of_index(self) -> str | None:
        """Returns the UUID of the index with the rows and, where it was restored, its history's.

        An index that is restored from a snapshot while it is closed keeps its UUID. Each restore,
        and nothing else, gives it another history. None: there is no index of that name.
        """
        answer = self._client.ask("GET", f"{quote(self._index, safe='')}/_settings")
        if answer.is_missing():
            return None
        known = answer.decoded(SETTINGS).get(self._index)
        if known is None:
            return None
        index = known.settings.index
        return index.uuid if index.history is None else f"{index.uuid} {index.history.uuid}"

    def record(self, transaction: Transaction, index_uuids: str | None = None) -> bool:
        """Records a batch; False: it was recorded before.

        Args:
            transaction: of the batch.
            index_uuids: of the index that has its rows; None: they are not looked at.

        Raises:
            SinkError: if something else is recorded than the transaction expects.
            SinkUnavailableError: if it is not known whether it is recorded.
            TableMismatchError: if the batches before went into another index, or it was restored.
        """
        writer = uuid.uuid4().hex
        attempt = functools.partial(self._record_once, transaction, index_uuids, writer)
        return retry(attempt, SinkUnavailableError, _DELAYS_SECONDS)

    def _record_once(self, transaction: Transaction, index_uuids: str | None, writer: str) -> bool:
        recorded = self.recorded()
        if recorded.writer == writer:
            return True  # The answer to the attempt before was lost.
        if not recorded.has_index:
            raise SinkError(self.uri, "the index was deleted; the next start creates it")
        if not transaction.follows(recorded.versions, self.uri):
            return False
        are_known = None not in (recorded.index_uuids, index_uuids)
        is_other = are_known and recorded.index_uuids != index_uuids
        if is_other and not transaction.begins_elsewhere:
            reason = (
                "the index was deleted, recreated, restored or replaced since the pipeline wrote "
                "to it: rows of earlier batches may be gone. Read the topic again with `headrace "
                "checkpoint reset PIPELINE --to earliest`: documents that exist stay as they are"
            )
            raise TableMismatchError(self._index, reason)
        versions = {**recorded.versions, **transaction.versions}
        # Of a pipeline that wrote to one index, and now to those of times: that may come back.
        uuids = index_uuids or recorded.index_uuids
        body = msgspec.json.encode({"versions": versions, "writer": writer, "index_uuids": uuids})
        answer = self._client.ask("PUT", f"{self._path}?{recorded.condition}", body)
        if answer.status == _CONFLICT:
            raise SinkUnavailableError(self.uri, "the positions have changed since they were read")
        answer.decoded(WRITTEN)
        return True

    def close(self) -> None:
        """Closes the connections."""
        self._client.close()
