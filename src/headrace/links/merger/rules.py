"""What must hold for a declared merger before anything starts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from headrace.kafka.admin.record_limits import ANY_TIME, TIMES_AHEAD, TIMES_BEHIND, max_batch_bytes
from headrace.links.merger.declaration import Merger
from headrace.links.timing import interval_faults
from headrace.model import Topic
from headrace.model.fault import Fault, duration, is_a
from headrace.project.kind import Declaration, DeclarationFault, Declarations, declared

MIN_SOURCES = 2
_METADATA_BYTES = 4096  # offset.metadata.max.bytes of a broker, by default
_NUMBERS_BYTES, _TOPIC_ID_BYTES = 100, 24
_MAX_AHEAD_MS = 3_600_000  # what topics take by default; they take any time before


def merger_faults(merger: Merger) -> Iterator[Fault]:
    """Yields what is wrong with one merger by itself."""
    yield from _topic_faults(merger)
    yield from _partition_faults(merger)
    yield from _size_faults(merger)
    yield from _limit_faults(merger)
    yield from _metadata_faults(merger)
    yield from duration(merger, "allowed_lateness", timedelta(0))
    yield from duration(merger, "idle_timeout", timedelta.resolution)
    yield from interval_faults(merger, merger.commit_every, _label(merger))


def written_beside_mergers(declarations: Declarations) -> Iterator[DeclarationFault]:
    """Yields what else writes the target of a merger, which is sorted only without that."""
    merged: dict[str, Declaration[Merger]] = {}
    for declaration in declared(declarations, Merger):
        merged.setdefault(declaration.value.target.name, declaration)
    for declaration in declarations:
        for _, topic in declaration.kind.writes(declaration.value):
            merger = merged.get(topic.name)
            if merger is not None and merger is not declaration:
                message = f"writes to {topic.name!r}, the target of {merger.value.name!r}"
                yield declaration, Fault(f"{declaration} {message}", f"see {merger.place}")


def merger_type_faults(merger: Merger) -> Iterator[Fault]:
    """Yields which parts of a merger are not what the model says."""
    if not is_a(merger.name, str):
        yield Fault(f"merger {merger.name!r}: name is {merger.name!r}", "text")
    for attribute in ("sources", "mirrored_elsewhere"):
        topics: Any = getattr(merger, attribute)
        if not isinstance(topics, Sequence) or not all(map(_is_topic, topics)):
            yield Fault(f"{_label(merger)}: {attribute} is {topics!r}", "a list of declared Topics")
    for attribute in ("target", "late"):
        if not _is_topic(getattr(merger, attribute)):
            value = getattr(merger, attribute)
            yield Fault(f"{_label(merger)}: {attribute} is {value!r}", "a declared Topic")


def _is_topic(value: object) -> bool:
    return isinstance(value, Topic) and is_a(value.name, str) and is_a(value.partitions, int)


def _topic_faults(merger: Merger) -> Iterator[Fault]:
    if len(merger.sources) < MIN_SOURCES:
        yield Fault(f"{_label(merger)} has {len(merger.sources)} sources", "at least two topics")
    topics = [topic.name for topic in (*merger.sources, merger.target, merger.late)]
    for name, count in Counter(topics).items():
        if count > 1:
            yield Fault(
                f"{_label(merger)} has topic {name!r} {count} times",
                "sources, target and late are different topics: a merger must not read what it "
                "writes",
            )
    sources = {topic.name for topic in merger.sources}
    for topic in merger.mirrored_elsewhere:
        if topic.name not in sources:
            message = f"{_label(merger)}: mirrored_elsewhere has {topic.name!r}"
            yield Fault(message, f"one of its sources: {', '.join(sorted(sources))}")
    for topic in (merger.target, merger.late):
        if topic.config.get("message.timestamp.type") == "LogAppendTime":
            yield Fault(
                f"{_label(merger)}: topic {topic.name!r} has message.timestamp.type LogAppendTime",
                "CreateTime: records keep their own times",
            )
    for topic in (*merger.sources, merger.target, merger.late):
        if topic.is_compacted:
            yield Fault(
                f"{_label(merger)}: topic {topic.name!r} is compacted",
                "a key's record may be deleted before it is merged, or before it is read in order",
            )


def _partition_faults(merger: Merger) -> Iterator[Fault]:
    counts = {
        topic.name: topic.partitions for topic in (*merger.sources, merger.target, merger.late)
    }
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{name} {count}" for name, count in counts.items())
        yield Fault(
            f"{_label(merger)}: its topics have different partitions: {listed}",
            "one number: the same key is in the same partition of each",
        )


def _size_faults(merger: Merger) -> Iterator[Fault]:
    needed = max((max_batch_bytes(topic) for topic in merger.sources), default=0)
    for topic in (merger.target, merger.late):
        if max_batch_bytes(topic) < needed:
            yield Fault(
                f"{_label(merger)}: topic {topic.name!r} takes {max_batch_bytes(topic)} bytes, and "
                f"a source {needed}",
                f'Topic({topic.name!r}, config={{"max.message.bytes": "{needed}"}})',
            )


def _limit_faults(merger: Merger) -> Iterator[Fault]:
    """Times that a source takes: records ahead of the clock go to ``late``, with their times."""
    for setting, default, targets in (
        (TIMES_AHEAD, _MAX_AHEAD_MS, (merger.late,)),
        (TIMES_BEHIND, ANY_TIME, (merger.target, merger.late)),
    ):
        taken = [_limit(topic, setting, default) for topic in merger.sources]
        for topic in targets:
            limit = _limit(topic, setting, default)
            if limit < max(taken, default=limit):
                yield Fault(
                    f"{_label(merger)}: topic {topic.name!r} has {setting} {limit}, and a source "
                    f"{max(taken)}",
                    f'Topic({topic.name!r}, config={{"{setting}": "{max(taken)}"}})',
                )


def _limit(topic: Topic, setting: str, default: int) -> int:
    """Returns a number that a topic declares; the broker refuses a text that is none."""
    text = topic.config.get(setting, "")
    return int(text) if text.isdecimal() else default


def _metadata_faults(merger: Merger) -> Iterator[Fault]:
    """The names of all sources are kept with the position of each."""
    needed = _NUMBERS_BYTES + sum(len(topic.name) + _TOPIC_ID_BYTES for topic in merger.sources)
    if needed > _METADATA_BYTES:
        yield Fault(
            f"{_label(merger)}: its {len(merger.sources)} sources need {needed} bytes of metadata "
            f"with each offset, and brokers take {_METADATA_BYTES}",
            "shorter names, or two mergers one after the other",
        )


def _label(merger: Merger) -> str:
    return f"merger {merger.name!r}"
