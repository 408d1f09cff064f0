"""What a measurement has found, and the file that `headrace size` takes it from."""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fractions import Fraction
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from headrace.runtime.files.json_files import write_json
from headrace.runtime.process_tree import Usage

FORMAT = "headrace-measured-1"
"""First member of the file; another format would have another number."""

Subject: TypeAlias = Literal["worker", "pipeline", "producer"]
_Positive: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]
_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
_Amount: TypeAlias = Annotated[float, msgspec.Meta(ge=0)]
_Rate: TypeAlias = Annotated[float, msgspec.Meta(gt=0)]
_Share: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1)]

_PACKAGES = ("headrace", "confluent-kafka", "pyspark", "pyarrow", "msgspec")
_CPU_INFO = Path("/proc/cpuinfo")


@dataclass(frozen=True)
class RoundSpread:
    """The median of all rounds, and the lowest and the highest of them."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> RoundSpread:
        """Returns the spread of one value or more."""
        known = list(values)
        return cls(statistics.median(known), min(known), max(known))


@dataclass(frozen=True)
class Round:
    """One round, after the warm-up.

    Attributes:
        seconds: that it took.
        records: that were processed, failed ones included.
        failed: of these, those that failed.
        cpu_seconds: user and system time of the process tree.
        sent_records: that were written.
        sent_bytes: of their keys and values, before compression.
    """

    seconds: _Rate
    records: _Positive
    failed: _Count
    cpu_seconds: _Amount
    sent_records: _Count = 0
    sent_bytes: _Amount = 0

    @property
    def records_per_second(self) -> float:
        """Returns the rate."""
        return self.records / self.seconds

    @property
    def cpu_seconds_per_million(self) -> float:
        """Returns the CPU of a million records."""
        return self.cpu_seconds / self.records * 1e6


@dataclass(frozen=True)
class SampleUsed:
    """The records that were measured with: where they are from, how many, their mean size."""

    source: str
    records: _Positive
    mean_bytes: _Rate


@dataclass(frozen=True)
class UserTime:
    """What the user's own function took, of all rounds together.

    Attributes:
        seconds_per_call: from its call to its end, waiting included.
        cpu_share: of the CPU of the process tree.
    """

    seconds_per_call: _Amount
    cpu_share: _Share


@dataclass(frozen=True)
class Machine:
    """The machine that was measured on."""

    cores: _Positive
    model: str
    memory_bytes: _Positive
    system: str


@dataclass(frozen=True)
class MeasuredDeclaration:
    """A measurement of a worker, a pipeline or a producer, with one partition.

    Attributes:
        kind: what was measured.
        name: of the declaration.
        command: the command line.
        measured_at: in UTC, as RFC 3339 has it.
        versions: of what decides the speed.
        machine: where.
        sample: with what.
        rounds: all of them.
        peak_memory_bytes: largest resident memory of the process tree.
        peak_worker_bytes: largest resident memory of one Python process below the command; 0 where
            there is none.
        user: of a function; ``None``: it was not measured.
        not_measured: parts of the cost that are missing, as sentences.
    """

    kind: Subject
    name: str
    command: str
    measured_at: str
    versions: Mapping[str, str]
    machine: Machine
    sample: SampleUsed
    rounds: Annotated[tuple[Round, ...], msgspec.Meta(min_length=1)]
    peak_memory_bytes: _Positive
    peak_worker_bytes: _Count = 0
    user: UserTime | None = None
    not_measured: tuple[str, ...] = ()
    format: str = field(default=FORMAT)

    @property
    def records_per_second(self) -> RoundSpread:
        """Returns the rate with one partition."""
        return RoundSpread.of(each_round.records_per_second for each_round in self.rounds)

    @property
    def event_bytes(self) -> Fraction:
        """Returns the mean size of a record."""
        return Fraction(self.sample.mean_bytes)

    @property
    def consumer_rate(self) -> Fraction | None:
        """Returns the records a second of a consumer; ``None``: it consumes nothing."""
        is_consumer = self.kind != "producer"
        return Fraction(self.records_per_second.median) if is_consumer else None

    @property
    def cpu_seconds_per_million(self) -> RoundSpread:
        """Returns the CPU of a million records."""
        return RoundSpread.of(each_round.cpu_seconds_per_million for each_round in self.rounds)

    @property
    def failed_share(self) -> float:
        """Returns the share of records that failed."""
        return sum(r.failed for r in self.rounds) / sum(r.records for r in self.rounds)

    @property
    def sent_bytes_per_record(self) -> float:
        """Returns the bytes that are written for a record."""
        return sum(r.sent_bytes for r in self.rounds) / sum(r.records for r in self.rounds)

    @property
    def bytes_in_per_second(self) -> float:
        """Returns bytes of keys and values that are read, or encoded, in a second."""
        return self.records_per_second.median * self.sample.mean_bytes

    @property
    def bytes_out_per_second(self) -> float:
        """Returns bytes of keys and values that are written in a second."""
        return self.records_per_second.median * self.sent_bytes_per_record

    def to_json(self) -> dict[str, Any]:
        """Returns the members, the figures of all rounds among them."""
        figures = {
            "records_per_second": self.records_per_second,
            "bytes_in_per_second": self.bytes_in_per_second,
            "bytes_out_per_second": self.bytes_out_per_second,
            "cpu_seconds_per_million": self.cpu_seconds_per_million,
            "failed_share": self.failed_share,
        }
        own: dict[str, Any] = msgspec.to_builtins(self)
        members: dict[str, Any] = msgspec.to_builtins(figures)
        return {"format": self.format} | own | members

    def write(self, path: Path) -> None:
        """Writes the file. Raises OSError."""
        write_json(path, self.to_json())


def read_measured(path: Path) -> MeasuredDeclaration:
    """Returns what :meth:`MeasuredDeclaration.write` wrote.

    Raises:
        OSError: if it can't be read.
        ValueError: if it is something else; the text names the member and what it must be.
    """
    content = path.read_bytes()
    document = json.loads(content)
    kind = document.get("format") if isinstance(document, dict) else None
    if kind != FORMAT:
        raise ValueError(f"`format` is {kind!r}, not {FORMAT!r}")
    return msgspec.convert(document, MeasuredDeclaration)


def machine() -> Machine:
    """Returns this machine."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return Machine(os.cpu_count() or 1, _model(), memory, platform.platform())


def memory(usage: Usage) -> tuple[int, int]:
    """Returns the bytes that a process tree, and a Python process below it, had at most."""
    return int(usage.peak_memory_mb * 1e6), int(usage.peak_worker_memory_mb * 1e6)


def versions() -> dict[str, str]:
    """Returns the versions of what decides the speed, without what is not installed."""
    installed = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            installed[package] = version(package)
        except PackageNotFoundError:
            continue
    return installed


def now() -> str:
    """Returns the time of a measurement."""
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _model() -> str:
    try:
        lines = _CPU_INFO.read_text().splitlines()
    except OSError:
        return platform.machine()
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.machine())
