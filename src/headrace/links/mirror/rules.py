"""What must hold for a declared mirror before anything starts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from headrace.links.mirror.declaration import Mirror
from headrace.links.timing import interval_faults
from headrace.model import Topic
from headrace.model.fault import Fault, is_a
from headrace.settings import Settings
from headrace.topics.rules import name_faults

_TOPICS = "names of the source's topics, each with the declared Topic that it is copied to"


def mirror_faults(mirror: Mirror, settings: Settings) -> Iterator[Fault]:
    """Yields what is wrong with one mirror by itself."""
    yield from _site_faults(mirror, settings)
    yield from _topic_faults(mirror)
    yield from interval_faults(mirror, mirror.commit_every, _label(mirror))


def mirror_type_faults(mirror: Mirror) -> Iterator[Fault]:
    """Yields which parts of a mirror are not what the model says."""
    topics: Any = mirror.topics
    for name, value in (("name", mirror.name), ("source", mirror.source)):
        if not is_a(value, str):
            yield Fault(f"mirror {mirror.name!r}: {name} is {value!r}", "text")
    if not isinstance(topics, Mapping):
        yield Fault(f"{_label(mirror)}: topics is {topics!r}", _TOPICS)
        return
    for name, topic in topics.items():
        if not is_a(name, str) or not is_a(topic, Topic) or not is_a(topic.name, str):
            yield Fault(f"{_label(mirror)}: topics has {name!r}: {topic!r}", _TOPICS)


def _site_faults(mirror: Mirror, settings: Settings) -> Iterator[Fault]:
    if mirror.source == settings.site:
        yield Fault(
            f"{_label(mirror)}: source {mirror.source!r} is the project's own site",
            "name another one; a mirror copies to its own",
        )
    elif mirror.source not in settings.sites:
        known = ", ".join(settings.sites) or "none"
        yield Fault(
            f"{_label(mirror)}: there is no site {mirror.source!r}; declared: {known}",
            f"add [sites.{mirror.source}.kafka] to headrace.toml",
        )


def _topic_faults(mirror: Mirror) -> Iterator[Fault]:
    if not mirror.topics:
        yield Fault(f"{_label(mirror)} has no topics", _TOPICS)
    for name in mirror.topics:
        for fault in name_faults(name):
            yield Fault(f"{_label(mirror)}: {fault.message}", fault.remedy)
    for name, count in Counter(topic.name for topic in mirror.topics.values()).items():
        if count > 1:
            yield Fault(
                f"{_label(mirror)} copies {count} topics to {name!r}",
                "a copy is of one topic: the order and the position are that one's",
            )
    for topic in mirror.topics.values():
        if topic.config.get("message.timestamp.type") == "LogAppendTime":
            yield Fault(
                f"{_label(mirror)}: copy {topic.name!r} has message.timestamp.type LogAppendTime",
                'config={"message.timestamp.type": "CreateTime"}: a mirror keeps'
                " the records' own times, which `reconcile` compares",
            )


def _label(mirror: Mirror) -> str:
    return f"mirror {mirror.name!r}"
