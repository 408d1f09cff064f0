"""Ad impressions of a thousand advertisers, and how many each of them has in each minute.

Events are those of ``bench.events`` with an advertiser, which is the record key: those of one
advertiser are in one partition, so a system that counts by record key needs no topic in between.
Final events of each advertiser come behind them, five minutes ahead: they end all windows before
them, and are in none that ends. However many events there are, as many come in a minute.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import TypeAlias

import msgspec

from bench.cluster import Placed
from bench.events import BEGIN, SPAN, events

ADVERTISERS = 1_000
WINDOW = timedelta(minutes=1)
ALLOWED_LATENESS = timedelta(minutes=1)
"""Events are up to half a minute out of order, and partitions are not read evenly."""
EVENTS_IN_SPAN = 2_000_000
FINAL_AHEAD = timedelta(minutes=5)
# A twentieth of the last of ten batches: headrace's time of events goes on to what up to three
# hundredths of a batch have reached.
_FINAL_EVERY = 200
# A multiple of the number of partitions, which consecutive events go to in turn.
_TURN = 8
_MS = timedelta(milliseconds=1)
_WINDOW_MS = WINDOW // _MS

Counts: TypeAlias = Mapping[tuple[str, int], int]
"""How many events there are, by advertiser and begin of the window in ms since 1970."""


class _Timed(msgspec.Struct):
    event_time: int


def records(count: int, partitions: int) -> Iterator[Placed]:
    """``count`` events into the partitions in turn, the final ones behind all others."""
    for advertiser, value in _counted_events(count):
        yield _placed(advertiser, value, partitions)
    final = next(events(1))
    final_ms = int((BEGIN + _span(count) + FINAL_AHEAD).timestamp() * 1000)
    final = final.replace(b"%d" % _time_ms(final), b"%d" % final_ms)
    for number in range(final_events(count)):
        yield _placed(number % ADVERTISERS, final, partitions)


def final_events(count: int) -> int:
    """How many of ``count`` events are final ones."""
    return max(ADVERTISERS, count // _FINAL_EVERY)


def counts(count: int) -> Counter[tuple[str, int]]:
    """What is to be counted in ``count`` events: the final ones are not."""
    return Counter(
        (_name(advertiser), _time_ms(value) // _WINDOW_MS * _WINDOW_MS)
        for advertiser, value in _counted_events(count)
    )


def _counted_events(count: int) -> Iterator[tuple[int, bytes]]:
    """Numbers of the advertisers, which partitions follow from, and events without them."""
    draw = random.Random(count)
    values = events(count - final_events(count), span=_span(count))
    for number, value in enumerate(values):
        yield number % _TURN + draw.randrange(ADVERTISERS // _TURN) * _TURN, value


def _span(count: int) -> timedelta:
    return SPAN * count / EVENTS_IN_SPAN


def _placed(advertiser: int, value: bytes, partitions: int) -> Placed:
    key = _name(advertiser).encode()
    return advertiser % partitions, key, b'{"advertiser":"%s",%s' % (key, value[1:])


def _name(advertiser: int) -> str:
    return f"advertiser-{advertiser}"


_DECODER = msgspec.json.Decoder(_Timed)


def _time_ms(value: bytes) -> int:
    return _DECODER.decode(value).event_time
