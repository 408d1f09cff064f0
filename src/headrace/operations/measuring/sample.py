"""Records to measure with: the newest of a topic, or the events of a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from pathlib import Path

from headrace.errors import MeasurementError
from headrace.events import BYTE_ORDER_MARK
from headrace.ingest.http.problem import ProblemDetails
from headrace.ingest.producing.event_producer import TopicCheck
from headrace.kafka.admin.measuring import SampledRecord, newest_records
from headrace.kafka.client.clients import ClientConfig
from headrace.model import Topic
from headrace.operations.measuring.result import SampleUsed
from headrace.settings import Settings

ACCOUNT = "measured"
"""Whose events are measured with, where a topic places events by account."""
FEW = 100
"""With fewer records the mean of the sample says little."""


def _as_it_is(record: SampledRecord, number: int) -> SampledRecord:  # noqa: ARG001
    return record


@dataclass(frozen=True)
class RecordSample:
    """Records of one topic, and where they are from.

    Attributes:
        repeated: returns a record as it is written for the n-th time, from 0.
    """

    source: str
    records: tuple[SampledRecord, ...]
    repeated: Callable[[SampledRecord, int], SampledRecord] = _as_it_is

    @property
    def mean_bytes(self) -> Fraction:
        """Returns the mean size of keys and values."""
        return Fraction(sum(record.size for record in self.records), len(self.records))


def sample_of(
    config: ClientConfig, settings: Settings, topic: Topic, count: int, file: Path | None
) -> RecordSample:
    """Returns ``count`` records for ``topic`` at most: of ``file``, or the newest that it has.

    Raises:
        MeasurementError: if there are none, or an event of the file does not fit the topic.
        TopicMissingError: if there is no such topic.
        BrokerUnreachableError: if the brokers do not answer within 15 seconds.
    """
    if file is not None:
        return RecordSample(str(file), tuple(_of_file(settings, topic, count, file)))
    records = newest_records(config, topic.name, count)
    if not records:
        reason = f"topic {topic.name} has no records; produce some, or give events with --from FILE"
        raise MeasurementError(topic.name, reason)
    return RecordSample(f"topic {topic.name}", tuple(records))


def _of_file(settings: Settings, topic: Topic, count: int, file: Path) -> list[SampledRecord]:
    check = TopicCheck(topic, settings, ACCOUNT)
    records = []
    try:
        with file.open("rb") as stream:
            for number, line in enumerate(islice(stream, count), 1):
                text = line.removeprefix(BYTE_ORDER_MARK).strip()
                if text:
                    records.append(_checked(check, topic, text, f"line {number} of {file}"))
    except OSError as error:
        raise MeasurementError(topic.name, f"--from {file}: {error.strerror}") from error
    if not records:
        raise MeasurementError(topic.name, f"--from {file}: it has no events")
    return records


def _checked(check: TopicCheck, topic: Topic, text: bytes, place: str) -> SampledRecord:
    record = check(text)
    if isinstance(record, ProblemDetails):
        reason = f"{place} is no event of topic {topic.name}: {record.code}: {record.detail}"
        raise MeasurementError(topic.name, reason)
    return SampledRecord(record.value, record.key or None)


def used(samples: Mapping[str, RecordSample], mean_bytes: float) -> SampleUsed:
    """Returns what a measurement says of its samples, whose records have so many bytes."""
    sources = ", ".join(sample.source for sample in samples.values())
    count = sum(len(sample.records) for sample in samples.values())
    return SampleUsed(sources, count, mean_bytes)
