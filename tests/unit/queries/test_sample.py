"""How events fare with a query: operand by operand, in the order of the index."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from headrace import Topic
from headrace.model import OffsetRange, TopicPartition
from headrace.pipelines.source.decode import columns_for
from headrace.queries.language import parse_query
from headrace.queries.sample import OperandFigures, newest_ranges, sample_query

BEGIN = datetime(2026, 5, 1, 10, tzinfo=UTC)


class Click:
    at: datetime
    country: str
    campaign: str | None
    price: float


TOPIC = Topic("clicks", event=Click, event_time="at")


def clicks(*events):
    """Returns rows of country, campaign and price; one second apart."""
    rows = [
        {"at": BEGIN + timedelta(seconds=n), "country": c, "campaign": campaign, "price": price}
        for n, (c, campaign, price) in enumerate(events)
    ]
    return pa.Table.from_pylist(rows, schema=columns_for(TOPIC.schema))


def sample(text, rows, rejected=0):
    return sample_query(rows, parse_query(text), TOPIC, rejected)


CLICKS = clicks(
    ("PL", "men", 5.0), ("PL", "women", 1.0), ("DE", "men", 5.0), ("PL", None, 7.0),
    ("PL", "men", 6.0), ("PL", "kids", 4.0),
)  # fmt: skip


def test_the_rarest_equality_is_looked_up_and_the_others_follow_in_their_order():
    figures = sample(
        "SELECT count(*) FROM clicks WHERE price > 1 AND country = 'PL' AND campaign = 'men'",
        CLICKS,
    )
    assert figures.operands == (
        OperandFigures("campaign = 'men'", 6, 3, is_lookup=True),
        OperandFigures("price > 1", 3, 3, is_lookup=False),
        OperandFigures("country = 'PL'", 3, 2, is_lookup=False),
    )
    assert (figures.lookup, figures.candidates, figures.matches) == ("campaign = 'men'", 3, 2)
    assert (figures.candidate_share, figures.candidates_per_match) == (0.5, 1.5)
    assert figures.newest_match == BEGIN + timedelta(seconds=4)


def test_a_list_of_rare_values_is_looked_up_before_a_frequent_value():
    campaigns = [f"rare {number}" for number in range(10)]
    rows = clicks(
        *(("PL", campaign, 1.0) for campaign in campaigns for _ in range(4)),
        *(("DE", "frequent", 1.0) for _ in range(20)),
        *(("PL", "frequent", 1.0) for _ in range(940)),
    )
    values = ", ".join(f"'{campaign}'" for campaign in campaigns)
    conditions = f"campaign IN ({values}) AND country = 'DE'"
    figures = sample(f"SELECT count(*) FROM clicks WHERE {conditions}", rows)
    assert (figures.lookup, figures.candidates) == (f"campaign IN ({values})", 40)


def test_without_an_equality_every_event_is_looked_at():
    figures = sample("SELECT count(*) FROM clicks WHERE price > 5", CLICKS)
    assert (figures.lookup, figures.candidates, figures.matches) == ("", 6, 2)
    assert [operand.is_lookup for operand in figures.operands] == [False]
    everything = sample("SELECT count(*) FROM clicks", CLICKS)
    assert (everything.operands, everything.matches, everything.groups) == ((), 6, None)


def test_a_list_is_looked_up_by_all_of_its_values():
    figures = sample("SELECT count(*) FROM clicks WHERE campaign IN ('kids', 'women')", CLICKS)
    assert (figures.lookup, figures.candidates) == ("campaign IN ('kids', 'women')", 2)


def test_a_query_that_nothing_matches_has_no_cost_for_each_match():
    figures = sample("SELECT count(*) FROM clicks WHERE country = 'FR'", CLICKS)
    assert (figures.matches, figures.newest_match) == (0, None)
    assert (figures.candidate_share, figures.candidates_per_match) == (0.0, None)


def test_the_groups_of_the_matches_are_counted_null_included():
    text = "SELECT count(*) FROM clicks WHERE country = 'PL' FACET campaign, price > 5 LIMIT 7"
    figures = sample(text, CLICKS)
    assert (figures.groups, figures.max_groups) == (5, 7)


def test_events_without_a_time_reach_no_operand():
    untimed = {"at": None, "country": "PL", "campaign": "men", "price": 9.0}
    rows = pa.concat_tables([CLICKS, pa.Table.from_pylist([untimed], schema=CLICKS.schema)])
    figures = sample("SELECT count(*) FROM clicks WHERE campaign = 'men'", rows, rejected=2)
    assert (figures.events, figures.untimed, figures.rejected) == (7, 1, 2)
    assert figures.operands[0].reached == 6


def test_a_topic_without_events_says_nothing_of_shares():
    figures = sample("SELECT count(*) FROM clicks WHERE country = 'PL' FACET price", clicks())
    assert (figures.events, figures.candidate_share, figures.groups) == (0, None, 0)


@pytest.mark.parametrize(
    ("marks", "limit", "expected"),
    [
        ([(0, 100), (0, 100)], 20, [(0, 90, 100), (1, 90, 100)]),
        ([(0, 4), (50, 100)], 20, [(0, 0, 4), (1, 84, 100)]),
        ([(7, 7), (0, 3)], 20, [(1, 0, 3)]),
        ([(0, 100), (0, 100), (0, 100)], 1, [(0, 99, 100)]),
        ([], 10, []),
    ],
)
def test_the_ends_of_partitions_are_read_as_far_as_there_is_room(marks, limit, expected):
    places = {TopicPartition("clicks", number): mark for number, mark in enumerate(marks)}
    assert newest_ranges(places, limit) == [
        OffsetRange(TopicPartition("clicks", number), begin, end) for number, begin, end in expected
    ]
