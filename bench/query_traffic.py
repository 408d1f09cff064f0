"""The events that standing queries are asked about, and the queries.

Events are the impressions of ``bench.events`` with an advertiser. One event in a thousand is of an
advertiser that a query asks for, and of one query: an event matches 0.001 queries on average,
however many there are. All others are of 100,000 advertisers that no query asks for.

Queries have 100 shapes: five results, four facets, and five conditions that each event meets beside
the one on the advertiser.
"""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache

from bench.events import Impression, events
from headrace import Topic
from headrace.model import EventSchema
from headrace.queries.language import check_query, parse_query, print_query
from headrace.queries.match.shape import Constants, compile_query
from headrace.queries.registry.record import RegisteredQuery

MATCH_EVERY = 1_000
ADVERTISERS = 1_000
"""That queries ask for."""
OTHER_ADVERTISERS = 100_000
POSITIONS = 3
TTL = timedelta(days=1)
_RESULTS = (
    "count(*)",
    "count(*), sum(propensity) AS total",
    "average(propensity) AS mean",
    "max(propensity) AS most",
    "uniqueCount(user_group) AS groups",
)
_FACETS = ("", "FACET category", "FACET campaign", "FACET user_segment")
_MET_BY_ALL = (
    "position >= 1",
    "propensity >= 0",
    "item_id >= 0",
    "event_time >= '2019-01-01T00:00:00Z'",
    "campaign != ''",
)
# They stand for what each query has of its own.
_ADVERTISER, _POSITION = "@advertiser", 77


class AdImpression(Impression):
    """An impression and who pays for it: about 310 bytes of JSON."""

    advertiser: str


def ad_impressions_topic(name: str, partitions: int) -> Topic:
    """The topic of the events, as a project would declare it."""
    return Topic(name, event=AdImpression, event_time="event_time", partitions=partitions)


@dataclass
class AdImpressions:
    """Events, and which of them match queries.

    Attributes:
        count: of the events.
        matching: advertiser and position of each event that a query asks for; filled by
            :meth:`values`.
    """

    count: int
    matching: list[tuple[int, int]] = field(default_factory=list)

    def values(self) -> Iterator[bytes]:
        """The events as JSON, in the order of ``bench.events``."""
        self.matching.clear()
        draw = random.Random(self.count)
        for number, value in enumerate(events(self.count)):
            advertiser = f"other-{draw.randrange(OTHER_ADVERTISERS)}"
            if number % MATCH_EVERY == 0:
                place = number // MATCH_EVERY % ADVERTISERS
                self.matching.append((place, json.loads(value)["position"]))
                advertiser = _asked(place)
            yield b'{"advertiser":"%s",%s' % (advertiser.encode(), value[1:])


@dataclass(frozen=True)
class QueryMix:
    """Registered queries.

    Attributes:
        count: of the queries.
        unselective: share of them with an equality on ``position``, which has three values.
        hot: share of them that have ``hot_matches`` of the matches; 0: all have as many.
        hot_matches: share of the matches.
    """

    count: int
    unselective: float = 0.0
    hot: float = 0.0
    hot_matches: float = 0.9

    def queries(self, topic: str) -> Iterator[RegisteredQuery]:
        """The queries on a topic, as they are registered."""
        now = datetime.now(UTC)
        for number in range(self.count):
            is_unselective = self._is_unselective(number)
            shapes = _shapes(topic, f"position = {_POSITION} AND " if is_unselective else "")
            yield shapes[number % len(shapes)].query(
                number, self._advertisers(number), self._position(number), now
            )

    def matches(self, matching: Sequence[tuple[int, int]]) -> Counter[str]:
        """How many events match each query: of those that one asks for, with their positions."""
        return Counter(
            _query_id(number)
            for number, position in ((self._query_of(place), at) for place, at in matching)
            if not self._is_unselective(number) or self._position(number) == position
        )

    def _advertisers(self, number: int) -> list[str]:
        """Whose impressions a query asks for; one that there is not if none is left for it."""
        first, last, step = self._places(number)
        return [_asked(place) for place in range(first, last, step)] or [f"absent-{number}"]

    def _places(self, number: int) -> tuple[int, int, int]:
        hot, end = self._hot_queries, self._hot_advertisers
        if number < hot:
            return number, end, hot
        return end + number - hot, ADVERTISERS, self.count - hot

    def _query_of(self, place: int) -> int:
        if place < self._hot_advertisers:
            return place % self._hot_queries
        cold = self.count - self._hot_queries
        return self._hot_queries + (place - self._hot_advertisers) % cold

    @property
    def _hot_queries(self) -> int:
        return round(self.count * self.hot)

    @property
    def _hot_advertisers(self) -> int:
        return round(ADVERTISERS * self.hot_matches) if self.hot else 0

    def _is_unselective(self, number: int) -> bool:
        return number % 10 < self.unselective * 10

    def _position(self, number: int) -> int:
        return number // 10 % POSITIONS + 1


@dataclass(frozen=True)
class _ShapeOfQueries:
    """A query with what stands for its own advertisers and position."""

    topic: str
    text: str
    key: str
    constants: Constants

    def query(
        self, number: int, advertisers: Sequence[str], position: int, now: datetime
    ) -> RegisteredQuery:
        listed = ", ".join(f"'{advertiser}'" for advertiser in advertisers)
        text = self.text.replace(f"'{_ADVERTISER}'", listed)
        own = {((_ADVERTISER,),): (tuple(advertisers),), (_POSITION,): (position,)}
        return RegisteredQuery(
            _query_id(number),
            text.replace(f"position = {_POSITION}", f"position = {position}"),
            self.topic,
            1,
            *(now, now, now + TTL),
            self.key,
            tuple(own.get(each, each) for each in self.constants),
        )


@cache
def _shapes(topic: str, condition: str) -> Sequence[_ShapeOfQueries]:
    schema = ad_impressions_topic(topic, 1).schema
    if schema is None:
        raise TypeError(topic)
    texts = (
        f'SELECT {results} FROM "{topic}" '
        f"WHERE {condition}advertiser IN ('{_ADVERTISER}') AND {is_met} {facet}"
        for results, facet, is_met in itertools.product(_RESULTS, _FACETS, _MET_BY_ALL)
    )
    return [_shape(topic, text, schema) for text in texts]


def _shape(topic: str, text: str, schema: EventSchema) -> _ShapeOfQueries:
    tree = parse_query(text)
    check_query(tree, schema, text)
    shape, constants = compile_query(tree, schema)
    return _ShapeOfQueries(topic, print_query(tree), shape.key, constants)


def _query_id(number: int) -> str:
    return f"query-{number}"


def _asked(place: int) -> str:
    return f"asked-{place}"
