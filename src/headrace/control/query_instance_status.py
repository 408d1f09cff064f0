"""The status of instances of standing queries, for `headrace status` and for Prometheus."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import msgspec

from headrace.events.times import TimeMs
from headrace.metrics import QUERY_METRICS, QUERY_TOPIC_METRICS
from headrace.runtime.instance_name import process_name
from headrace.runtime.json_files import read_json, write_passing
from headrace.runtime.prometheus import metric_lines, state_lines
from headrace.settings import Settings
from headrace.transfer.status import STALE_AFTER_SECONDS, TransferState

_ENDED = frozenset({TransferState.STOPPED, TransferState.FAILED})
_FIGURES = (
    "partitions",
    "uncovered_partitions",
    "late_events",
    "unbalanced_events",
    "faulty_queries",
)


@dataclass(frozen=True)
class QueryInstanceStatus:
    """Counts since an instance started, and its state. Names are those of the metrics.

    Attributes:
        queries: name of the standing queries.
        state: state of the instance; a spare is waiting.
        instance: host and process id.
        reason: why the instance is waiting or has failed.
        records: matched records that the instance has read.
        results: results that it has written.
        windows: open windows.
        owned: numbers of the partitions that it has.
        uncovered: numbers of the partitions that no instance has.
        late: late events, by query.
        unbalanced: number of missing and surplus matches by topic, as of the last snapshots.
        event_ms: event clock by topic, in milliseconds since 1970.
        faulty: queries whose records can't be added up, with the reason.
        updated_ms: time when this status was written, in milliseconds since 1970.
    """

    queries: str
    state: TransferState = TransferState.RUNNING
    instance: str = field(default_factory=process_name)
    reason: str = ""
    records: int = 0
    results: int = 0
    windows: int = 0
    owned: tuple[int, ...] = ()
    uncovered: tuple[int, ...] = ()
    late: Mapping[str, int] = field(default_factory=dict)
    unbalanced: Mapping[str, int] = field(default_factory=dict)
    event_ms: Mapping[str, TimeMs] = field(default_factory=dict)
    faulty: Mapping[str, str] = field(default_factory=dict)
    updated_ms: TimeMs = field(default_factory=lambda: time.time_ns() // 1_000_000)

    @property
    def partitions(self) -> int:
        """Returns how many partitions the instance has."""
        return len(self.owned)

    @property
    def uncovered_partitions(self) -> int:
        """Returns how many partitions no instance has."""
        return len(self.uncovered)

    @property
    def late_events(self) -> int:
        """Returns how many events came for windows that had ended."""
        return sum(self.late.values())

    @property
    def unbalanced_events(self) -> int:
        """Returns the number of missing and surplus matches."""
        return sum(self.unbalanced.values())

    @property
    def faulty_queries(self) -> int:
        """Returns how many queries have records that can't be added up."""
        return len(self.faulty)

    @property
    def behind_seconds(self) -> dict[str, float]:
        """Returns by how much event clocks lag behind real time, by topic; negative if ahead."""
        return {
            topic: (self.updated_ms - event_ms) / 1000 for topic, event_ms in self.event_ms.items()
        }

    def to_json(self) -> dict[str, Any]:
        """Returns the fields and figures by name."""
        figures = {name: getattr(self, name) for name in (*_FIGURES, "behind_seconds")}
        return asdict(self) | figures

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> QueryInstanceStatus:
        """Reads what :meth:`to_json` wrote.

        Raises:
            ValueError: if a value has another type than its field.
            KeyError: if there is no value of a field.
        """
        return msgspec.convert({member.name: values[member.name] for member in fields(cls)}, cls)

    def with_liveness(self) -> QueryInstanceStatus:
        """Returns the status; as failed if the instance wrote none for 30 s and did not stop."""
        silent_seconds = time.time() - self.updated_ms / 1000
        if self.state in _ENDED or silent_seconds < STALE_AFTER_SECONDS:
            return self
        reason = f"no heartbeat for {STALE_AFTER_SECONDS:.0f} s; the process may have been killed"
        return replace(self, state=TransferState.FAILED, reason=reason)

    def without_partitions(self) -> QueryInstanceStatus:
        """Returns the status without partitions and the figures that belong to them."""
        return QueryInstanceStatus(
            self.queries,
            self.state,
            self.instance,
            self.reason,
            self.records,
            self.results,
            updated_ms=self.updated_ms,
        )


# Made at import: msgspec crashes where several threads are the first to decode a class.
msgspec.json.Decoder(QueryInstanceStatus)


class QueryStatusFolder:
    """One JSON file per instance under ``.headrace/status/queries``, for ``headrace status``.

    Args:
        settings: the project's settings.
    """

    def __init__(self, settings: Settings) -> None:
        self._folder = settings.state / "status" / "queries"

    def write(self, status: QueryInstanceStatus) -> None:
        """Replaces the instance's file; if the disk fails, the old file stays."""
        write_passing(self._path(status), status.to_json())

    def read(self) -> list[QueryInstanceStatus]:
        """Returns the last status of every instance on this machine, by name and instance.

        An instance that wrote none for 30 s has failed. If another instance has run here since,
        the failed one is shown without partitions. A file that can't be read is left out.
        """
        paths = sorted(self._folder.glob("[!.]*.json"))
        written = (read_json(path, QueryInstanceStatus.from_json) for path in paths)
        statuses = [status.with_liveness() for status in written if status is not None]
        return [_without_stale_partitions(status, statuses) for status in statuses]

    def forget(self, queries: str) -> None:
        """Removes the files of stopped and failed instances of these standing queries."""
        for status in self.read():
            if status.queries == queries and status.state in _ENDED:
                self._path(status).unlink(missing_ok=True)

    def _path(self, status: QueryInstanceStatus) -> Path:
        return self._folder / f"{status.queries}.{status.instance}.json"


def _without_stale_partitions(
    status: QueryInstanceStatus, statuses: Iterable[QueryInstanceStatus]
) -> QueryInstanceStatus:
    """Returns a status; without partitions if the instance failed and another has run since."""
    has_successor = any(
        other.queries == status.queries and other.updated_ms > status.updated_ms
        for other in statuses
    )
    is_over = status.state is TransferState.FAILED and has_successor
    return status.without_partitions() if is_over else status


def query_exposition(status: QueryInstanceStatus) -> str:
    """Returns every metric of an instance, in the text format that Prometheus reads.

    A topic whose event clock is unknown has no sample.
    """
    labels = {"queries": status.queries, "instance": status.instance}
    lines: list[str] = []
    for metric in QUERY_METRICS:
        lines += metric_lines("headrace_queries_", metric, [(labels, getattr(status, metric.name))])
    for metric in QUERY_TOPIC_METRICS:
        samples = getattr(status, metric.name)
        lines += metric_lines(
            "headrace_queries_topic_",
            metric,
            [(labels | {"topic": topic}, value) for topic, value in sorted(samples.items())],
        )
    meaning = "the state of the instance: 1 for it"
    lines += state_lines("headrace_queries_state", meaning, TransferState, [(labels, status.state)])
    return "\n".join(lines) + "\n"
