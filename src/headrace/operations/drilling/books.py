"""The books of a drill beside those of pipelines: what was written, and what workers sent."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from headrace.ledger.balance import Book, BookLine, Remark
from headrace.ledger.sums import Hop
from headrace.ledger.windows import Imbalance, WindowState
from headrace.operations.drilling.arrivals import Arrivals
from headrace.operations.drilling.events import EventName, TopicEvents
from headrace.workers.declaration import Worker

MAX_NAMED = 20
"""Of lost or repeated events, the first ones are named."""

_UNSEEN = (
    "no record that it has sent has the id of an event: that all was processed is known by its "
    "positions alone"
)


@dataclass(frozen=True)
class WritingBook(Book):
    """What Kafka has acknowledged of the events of a topic, and what is in the topic.

    Attributes:
        topic: its name.
        acknowledged: events that all in-sync replicas had.
        in_topic: of these, those that are there.
        lost_ids: those that are not.
        repeated_ids: those that are there more than once.
    """

    section: ClassVar = "writing"
    heading: ClassVar = "written"

    topic: str
    acknowledged: int
    in_topic: int
    lost_ids: tuple[str, ...] = ()
    repeated_ids: tuple[str, ...] = ()
    unknown: str = ""

    def columns(self) -> tuple[str, ...]:
        """Returns the titles of figures."""
        return ("acknowledged", "in topic", "lost", "twice")

    def lines(self) -> Iterator[BookLine]:
        """Yields the line of the topic."""
        lost, repeated = len(self.lost_ids), len(self.repeated_ids)
        differences = _differences(self.topic, lost, repeated)
        state = WindowState.of(differences, "")
        figures = (self.acknowledged, self.in_topic, lost, repeated)
        yield BookLine(self.topic, state, figures, differences, "")

    def extras(self) -> Iterator[Remark]:
        """Yields the names of events that are lost or repeated."""
        yield from _named("lost", self.lost_ids)
        yield from _named("twice", self.repeated_ids)


@dataclass(frozen=True)
class SentTopic:
    """What workers have sent to a topic for the events of another.

    Attributes:
        topic: its name.
        in_topic: events of which it has a record.
        repeated_ids: those of which it has more records than the same event of the sample has
            otherwise.
        lost_ids: those of which it has none, nor a dead letter, and the same event of the sample
            has one otherwise.
    """

    topic: str
    in_topic: int
    repeated_ids: tuple[str, ...] = ()
    lost_ids: tuple[str, ...] = ()


@dataclass(frozen=True)
class WorkerBook(Book):
    """What became of the events of a topic in the workers that read it.

    Attributes:
        workers: their names.
        topic: that they read.
        events: that were acknowledged.
        dead_letters: events that became dead letters.
        is_exactly_once: whether no event may be repeated.
        sent: what they have sent, by topic.
    """

    section: ClassVar = "workers"
    heading: ClassVar = "worker {0.workers}, events of {0.topic}"

    workers: str
    topic: str
    events: int
    dead_letters: int
    is_exactly_once: bool
    sent: tuple[SentTopic, ...] = ()
    unknown: str = ""

    def columns(self) -> tuple[str, ...]:
        """Returns the titles of figures."""
        return ("events", "in topic", "dead letters", "lost", "repeated") if self.sent else ()

    def lines(self) -> Iterator[BookLine]:
        """Yields a line for each topic that was sent to."""
        for sent in self.sent:
            lost, repeated = len(sent.lost_ids), len(sent.repeated_ids)
            differences = _differences(sent.topic, lost, repeated if self.is_exactly_once else 0)
            figures = (self.events, sent.in_topic, self.dead_letters, lost, repeated)
            yield BookLine(sent.topic, WindowState.of(differences, ""), figures, differences, "")

    def extras(self) -> Iterator[Remark]:
        """Yields the names of events that are lost, or repeated beyond the promise."""
        for sent in self.sent:
            yield from _named(f"lost in {sent.topic}", sent.lost_ids)
            if self.is_exactly_once:
                yield from _named(f"repeated in {sent.topic}", sent.repeated_ids)


def writing_book(
    events: TopicEvents, acknowledged: Collection[EventName], arrivals: Arrivals
) -> WritingBook:
    """Compares what Kafka has acknowledged of a topic with what is in it."""
    own = _of_topic(events.number, acknowledged)
    counts = arrivals.get(events.topic.name, Counter())
    lost = [name for name in own if not counts[name]]
    repeated = sorted(
        name for name, count in counts.items() if count > 1 and name.topic == events.number
    )
    return WritingBook(
        events.topic.name, len(own), len(own) - len(lost), _texts(lost), _texts(repeated)
    )


def worker_book(
    events: TopicEvents,
    workers: Sequence[Worker],
    acknowledged: Collection[EventName],
    arrivals: Arrivals,
    fed: Collection[str],
) -> WorkerBook:
    """Compares the events of a topic with what its workers have sent.

    What should be there of an event is known by the others that are made of the same event of the
    sample: what most of them have.

    Args:
        events: of the topic.
        workers: that read it.
        acknowledged: all events that Kafka has acknowledged.
        arrivals: of all topics.
        fed: names of the topics that get events.
    """
    own = _of_topic(events.number, acknowledged)
    dead = arrivals.get(events.topic.dead_letters, Counter())
    letters = {name for name in own if dead[name]}
    sent = tuple(
        compared
        for topic, counts in arrivals.items()
        if topic not in fed and topic != events.topic.dead_letters
        if (compared := _compared(topic, own, letters, counts, events.period)) is not None
    )
    is_exactly_once = all(worker.is_exactly_once for worker in workers)
    names = ", ".join(worker.name for worker in workers)
    unknown = "" if sent else _UNSEEN
    return WorkerBook(
        names, events.topic.name, len(own), len(letters), is_exactly_once, sent, unknown
    )


def _compared(
    topic: str,
    own: Sequence[EventName],
    letters: Collection[EventName],
    counts: Counter[EventName],
    period: int,
) -> SentTopic | None:
    """Returns what a topic has of the events; None: it has nothing of any."""
    in_topic = [name for name in own if counts[name]]
    if not in_topic:
        return None
    repetitions: dict[int, list[EventName]] = defaultdict(list)
    for name in own:
        if name not in letters:
            repetitions[name.number % period].append(name)
    lost: list[EventName] = []
    repeated: list[EventName] = []
    for names in repetitions.values():
        usual = _usual([counts[name] for name in names])
        lost += [name for name in names if counts[name] < min(usual, 1)]
        repeated += [name for name in names if counts[name] > max(usual, 1)]
    return SentTopic(topic, len(in_topic), _texts(repeated), _texts(lost))


def _usual(counts: Sequence[int]) -> int:
    """Returns the most frequent number; of two, the greater one."""
    frequencies = Counter(counts)
    return max(frequencies, key=lambda count: (frequencies[count], count))


def _of_topic(number: int, names: Collection[EventName]) -> list[EventName]:
    return sorted(name for name in names if name.topic == number)


def _texts(names: Collection[EventName]) -> tuple[str, ...]:
    return tuple(map(str, sorted(names)))


def _differences(topic: str, lost: int, repeated: int) -> tuple[Imbalance, ...]:
    numbers = (lost, -repeated)
    return tuple(Imbalance(Hop.TARGET, number, partition=topic) for number in numbers if number)


def _named(kind: str, names: Sequence[str]) -> Iterator[Remark]:
    if names:
        rest = len(names) - MAX_NAMED
        more = f" and {rest:,} more" if rest > 0 else ""
        yield Remark("", f"{kind}: {', '.join(names[:MAX_NAMED])}{more}")
