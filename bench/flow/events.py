"""What the topics of event flow hold: impressions, clicks on a twentieth of them, and repeats.

Impressions are those of ``bench.events``. The record key of both topics is the impression's id, and
a click is in its impression's partition. One click in a hundred names an impression that there is
not; those are of the first five sixths of the impressions, so that the time in which they could
find one is over when the topics end.
"""

from __future__ import annotations

import heapq
import random
import uuid
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from bench.cluster import Placed
from bench.events import BEGIN, DISORDER_MS, SPAN, events, impressions_topic
from headrace import EpochMillis, Topic

CLICK_EVERY = 20
UNMATCHED_EVERY = 100
DELAY = timedelta(minutes=5)
"""A click comes at most so long after its impression."""
LONG_DELAY_EVERY = 10
REPEAT_EVERY = 50
REPEAT_BEHIND = 1_000
"""A repeat comes so many records after the first, and into another partition."""
_BEGIN_MS = int(BEGIN.timestamp() * 1000)
_MS = timedelta(milliseconds=1)
# As bench.events writes them: {"event_id":"<36 characters>","event_time":<13 digits>,
_ID, _TIME = slice(13, 49), slice(64, 77)


class Click:
    """A click on an impression: four fields, about 160 bytes of JSON."""

    event_id: str
    event_time: EpochMillis
    impression_id: str
    position: int


@dataclass(frozen=True)
class Traffic:
    """Impressions and clicks on them, in two topics of as many partitions.

    Attributes:
        count: of the impressions.
        partitions: of each topic.
        span: of the impressions' times.
        max_delay: of one click in ten; the others come within :data:`DELAY`.
        name: begins the names of the topics.
    """

    count: int
    partitions: int
    span: timedelta = SPAN
    max_delay: timedelta = DELAY
    name: str = "flow"

    @property
    def clicks_topic(self) -> Topic:
        """As a project would declare it."""
        name = f"{self.name}-clicks"
        return Topic(name, event=Click, event_time="event_time", partitions=self.partitions)

    @property
    def impressions_topic(self) -> Topic:
        """As a project would declare it."""
        return impressions_topic(f"{self.name}-impressions", self.partitions)

    @property
    def clicks(self) -> int:
        """How many there are."""
        return -(-self.count // CLICK_EVERY)

    @property
    def unmatched(self) -> int:
        """How many clicks name an impression that there is not."""
        return -(-self._end_of_unmatched // (CLICK_EVERY * UNMATCHED_EVERY))

    @property
    def messages(self) -> int:
        """Of both topics."""
        return self.count + self.clicks

    def impression_records(self) -> Iterator[Placed]:
        """The impressions, about as many in each partition."""
        for number, value in enumerate(events(self.count, span=self.span)):
            yield self._partition(number), value[_ID], value

    def click_records(self) -> Iterator[Placed]:
        """The clicks, in order of event time."""
        draw = random.Random(self.count)
        due: list[tuple[int, int, str, str]] = []
        for number, value in enumerate(events(self.count, span=self.span)):
            time_ms = int(value[_TIME])
            while due and due[0][0] < time_ms - DISORDER_MS:
                yield self._record(*heapq.heappop(due))
            if number % CLICK_EVERY == 0:
                delay_ms = draw.randrange(1, self._most_delay_ms(number, time_ms))
                own = str(uuid.UUID(int=draw.getrandbits(128), version=4))
                shown = value[_ID].decode()
                shown = f"none-{shown[5:]}" if self._is_unmatched(number) else shown
                heapq.heappush(due, (time_ms + delay_ms, number, shown, own))
        while due:
            yield self._record(*heapq.heappop(due))

    def _record(self, time_ms: int, number: int, impression: str, event_id: str) -> Placed:
        value = (
            f'{{"event_id":"{event_id}","event_time":{time_ms},'
            f'"impression_id":"{impression}","position":{time_ms % 3 + 1}}}'
        )
        return self._partition(number), impression.encode(), value.encode()

    def _partition(self, number: int) -> int:
        """In turn, but so that those with clicks, and those without a match, are in all of them."""
        clicks = number // CLICK_EVERY
        return (number + clicks + clicks // UNMATCHED_EVERY) % self.partitions

    def _most_delay_ms(self, number: int, time_ms: int) -> int:
        """No click comes after the topics' end."""
        is_long = number // CLICK_EVERY % LONG_DELAY_EVERY == 1
        most = self.max_delay if is_long else DELAY
        return max(2, min(most // _MS, _BEGIN_MS + self.span // _MS - time_ms))

    @property
    def _end_of_unmatched(self) -> int:
        return self.count * 5 // 6

    def _is_unmatched(self, number: int) -> bool:
        return number < self._end_of_unmatched and not number % (CLICK_EVERY * UNMATCHED_EVERY)


def with_repeats(count: int, partitions: int) -> Iterator[Placed]:
    """``count`` impressions, each fiftieth twice: see :func:`repeats`."""
    due: deque[tuple[int, Placed]] = deque()
    for number, value in enumerate(events(count)):
        yield number % partitions, value[_ID], value
        if number % REPEAT_EVERY == 0:
            again = (number + 1) % partitions, value[_ID], value
            due.append((number + REPEAT_BEHIND, again))
        while due and due[0][0] <= number:
            yield due.popleft()[1]
    for _, record in due:
        yield record


def repeats(count: int) -> int:
    """How many of the records of :func:`with_repeats` repeat another one."""
    return -(-count // REPEAT_EVERY)
