"""What must hold for a declared link that copies, whatever its kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from headrace.links.copying.declaration import CopyLink
from headrace.links.timing import interval_faults
from headrace.model import Topic
from headrace.model.fault import Fault, is_a
from headrace.topics.rules import name_faults

_TOPICS = "names of the source's topics, each with the declared Topic that it is copied to"


def copy_type_faults(link: CopyLink, kind: str, *texts: str) -> Iterator[Fault]:
    """Yields which parts of a link are not what the model says.

    Args:
        link: which one.
        kind: its kind, for messages.
        *texts: attributes of the kind that are texts.
    """
    topics: Any = link.topics
    label = f"{kind} {link.name!r}"
    for attribute in ("name", *texts):
        value = getattr(link, attribute)
        if not is_a(value, str):
            yield Fault(f"{label}: {attribute} is {value!r}", "text")
    if not isinstance(topics, Mapping):
        yield Fault(f"{label}: topics is {topics!r}", _TOPICS)
        return
    for name, topic in topics.items():
        if not is_a(name, str) or not is_a(topic, Topic) or not is_a(topic.name, str):
            yield Fault(f"{label}: topics has {name!r}: {topic!r}", _TOPICS)


def copy_faults(link: CopyLink, kind: str) -> Iterator[Fault]:
    """Yields what is wrong with the topics and the interval of a link by itself."""
    label = f"{kind} {link.name!r}"
    if not link.topics:
        yield Fault(f"{label} has no topics", _TOPICS)
    for name in link.topics:
        for fault in name_faults(name):
            yield Fault(f"{label}: {fault.message}", fault.remedy)
    for name, count in Counter(topic.name for topic in link.topics.values()).items():
        if count > 1:
            yield Fault(
                f"{label} copies {count} topics to {name!r}",
                "a copy is of one topic: the order and the position are that one's",
            )
    for topic in link.topics.values():
        if topic.config.get("message.timestamp.type") == "LogAppendTime":
            yield Fault(
                f"{label}: copy {topic.name!r} has message.timestamp.type LogAppendTime",
                f'config={{"message.timestamp.type": "CreateTime"}}: a {kind} keeps'
                " the records' own times, which `reconcile` compares",
            )
    yield from interval_faults(link, link.commit_every, label)
