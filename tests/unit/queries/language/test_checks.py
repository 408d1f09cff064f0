"""Names and types of a query, and its limits."""

from datetime import date, datetime
from decimal import Decimal
from typing import Any, Literal

import pytest

from headrace.errors import QueryTextError
from headrace.model.event import event_schema
from headrace.queries.language import check_query, parse_query, result_types
from headrace.queries.language.functions import FUNCTIONS, ValueType


class Owner:
    name: str
    since: datetime


class Click:
    campaign: str
    card: Literal["visa", "mastercard"] | None
    position: int
    price: float
    cost: Decimal
    is_new: bool
    at: datetime
    day: date
    tags: list[str]
    owner: Owner
    extra: Any


SCHEMA = event_schema(Click)


def checked(text, *, is_new=True):
    query = parse_query(text)
    check_query(query, SCHEMA, text, is_new=is_new)
    return query


@pytest.mark.parametrize(
    "condition",
    [
        "campaign = 'men' AND position IN (1, 2, 2.5)",
        "price * 2 + position > cost / -3",
        "is_new AND NOT (is_new = FALSE)",
        "at >= '2026-05-01T10:00:00Z' AND owner.since IN ('2026-05-01T10:00:00+02:00')",
        "owner.name LIKE 'a\\_%' OR owner.name IS NULL",
        "startsWith(lower(campaign), 'm') AND length(campaign) < 5",
        "floor(price) = ceil(price) OR abs(position) != 1",
        "price BETWEEN 1 AND position AND at BETWEEN '2026-05-01T10:00:00Z' AND at",
        "(" * 11 + "is_new" + " IN (TRUE, FALSE, TRUE, FALSE))" * 11,
        f"campaign = '{'a' * 9_000}' OR campaign IN ('{'b' * 9_000}')",
        f"campaign LIKE '{'a' * 1_000}' OR contains(campaign, '{'b' * 1_000}')",
        "card = 'visa' OR card IN ('mastercard') OR card > 'a' OR card = campaign",
        "TRUE",
    ],
)
def test_conditions_whose_types_go_together(condition):
    checked(f"SELECT count(*) FROM t WHERE {condition}")


def test_a_query_goes_on_whose_value_is_declared_no_longer():
    checked("SELECT count(*) FROM t WHERE card = 'amex' OR card IN ('diners')", is_new=False)


@pytest.mark.parametrize("percentage", ["0", "1", "1.5", "99.9", "100"])
def test_percentiles_are_percentages(percentage):
    checked(f"SELECT percentile(price, {percentage}) FROM t")


def test_the_types_of_a_result():
    query = checked(
        """
        SELECT count(*), sum(position), sum(price), average(position) AS mean, min(at),
               latest(campaign), uniqueCount(owner.name), percentile(cost, 95),
               rate(count(*), 1 second), histogram(price, 0, 10, 20), stddev(price)
        FROM t FACET owner.name, is_new AS new
        """
    )
    assert result_types(query, SCHEMA) == {
        "owner.name": ValueType.TEXT,
        "new": ValueType.BOOLEAN,
        "count(*)": ValueType.INTEGER,
        "sum(position)": ValueType.INTEGER,
        "sum(price)": ValueType.NUMBER,
        "mean": ValueType.NUMBER,
        "min(at)": ValueType.TIME,
        "latest(campaign)": ValueType.TEXT,
        "uniqueCount(owner.name)": ValueType.INTEGER,
        "percentile(cost, 95)": ValueType.NUMBER,
        "rate(count(*), 1 second)": ValueType.NUMBER,
        "histogram(price, 0, 10, 20)": ValueType.INTEGERS,
        "stddev(price)": ValueType.NUMBER,
    }


@pytest.mark.parametrize(
    ("text", "column", "reason"),
    [
        ("SELECT count(*) FROM t WHERE pric > 1", 30, "did you mean 'price'?"),
        ("SELECT count(*) FROM t WHERE owner.nam = 'x'", 30, "did you mean 'owner.name'?"),
        ("SELECT count(*) FROM t WHERE zzz = 1", 30, "there are campaign, card, position, price"),
        ("SELECT count(*) FROM t WHERE owner IS NULL", 30, "its fields are owner.name"),
        ("SELECT count(*) FROM t WHERE tags IS NULL", 30, "tags is a list"),
        ("SELECT count(*) FROM t WHERE day IS NULL", 30, "day is a date"),
        ("SELECT count(*) FROM t WHERE extra = 'x'", 30, "extra is a json"),
        ("SELECT count(*) FROM t WHERE campaign.x = 1", 30, "no field 'campaign.x'"),
        (
            "SELECT count(*) FROM t WHERE campaign = 1",
            41,
            "campaign is a text, and 1 is an",
        ),
        ("SELECT count(*) FROM t WHERE position IN (1, 'x')", 46, "'x' is a text"),
        ("SELECT count(*) FROM t WHERE card = 'viza'", 37, "never 'viza'; did you mean 'visa'?"),
        ("SELECT count(*) FROM t WHERE 'viza' = card", 30, "card is never 'viza'"),
        ("SELECT sum(price) FROM t WHERE card != 'amex'", 40, "are 'visa', 'mastercard'"),
        ("SELECT count(*) FROM t WHERE card IN ('visa', 'viza')", 47, "card is never 'viza'"),
        ("SELECT count(*) FROM t WHERE at > 'today'", 35, "'2026-05-01T10:00:00Z'"),
        ("SELECT count(*) FROM t WHERE at > '2026-05-01T10:00:00'", 35, "a time is compared"),
        ("SELECT count(*) FROM t WHERE at > campaign", 35, "a time is compared"),
        ("SELECT count(*) FROM t WHERE is_new > FALSE", 30, "> has no meaning for booleans"),
        ("SELECT count(*) FROM t WHERE is_new BETWEEN TRUE AND TRUE", 30, "BETWEEN has no meaning"),
        ("SELECT count(*) FROM t WHERE price", 30, "WHERE needs a boolean; price is a number"),
        ("SELECT count(*) FROM t WHERE is_new AND price", 41, "AND needs a boolean"),
        ("SELECT count(*) FROM t WHERE NOT campaign", 34, "NOT needs a boolean"),
        ("SELECT count(*) FROM t WHERE campaign + 1 > 2", 30, "+ needs a number"),
        ("SELECT count(*) FROM t WHERE -campaign > 2", 31, "- needs a number"),
        ("SELECT count(*) FROM t WHERE price LIKE 'x'", 30, "LIKE needs a text"),
        ("SELECT count(*) FROM t WHERE campaign LIKE 'x\\'", 30, "the pattern ends with"),
        (f"SELECT count(*) FROM t WHERE campaign LIKE '{'%a' * 101}'", 30, "at most 100 `%`"),
        (f"SELECT count(*) FROM t WHERE campaign LIKE '%a{'_' * 101}'", 30, "at most 100 `_`"),
        (
            f"SELECT count(*) FROM t WHERE campaign LIKE '%{'a' * 1_000}'",
            30,
            "aaa…' has 1,001 characters, and a constant text of LIKE has at most 1,000; shorten it",
        ),
        (f"SELECT count(*) FROM t WHERE endsWith('{'a' * 1_001}', campaign)", 39, "of endsWith"),
        (f"SELECT count(*) FROM t WHERE lower('{'a' * 1_001}') = 'a'", 36, "of lower has at most"),
        (f"SELECT count(*) FROM t FACET campaign, '{'a' * 1_001}' AS a", 40, "of FACET has at"),
        (f"SELECT uniqueCount('{'a' * 1_001}') FROM t", 20, "of uniqueCount has at most 1,000"),
        ("SELECT count(*) FROM t WHERE lower(price) = 'x'", 36, "lower needs a text"),
        ("SELECT count(*) FROM t WHERE lower() = 'x'", 30, "lower takes 1 argument"),
        ("SELECT sum(campaign) FROM t", 12, "sum needs a number; campaign is a text"),
        ("SELECT max(is_new) FROM t", 12, "max needs a number, a text or a time"),
        ("SELECT filter(count(*), WHERE price) FROM t", 31, "filter needs a boolean"),
        ("SELECT percentile(price, 101) FROM t", 8, "a percentile is a number from 0 to 100"),
        (
            "SELECT percentile(price, 0.95) FROM t",
            8,
            "a percentile is a number from 0 to 100: write percentile(price, 95)",
        ),
        ("SELECT filter(percentile(price, 0.29), WHERE is_new) FROM t", 8, "(price, 29)"),
        ("SELECT percentile(price, 0.999) FROM t", 8, "write percentile(price, 99.9)"),
        ("SELECT percentile(price, 0.005) FROM t", 8, "0.005 is below 1, the least percentile"),
        ("SELECT histogram(price, 0, 0, 5) FROM t", 8, "a width above zero"),
        ("SELECT histogram(price, 0, 1, 1.5) FROM t", 8, "1 to 100 buckets"),
        ("SELECT count(*), count(*) FROM t", 8, "two columns are called 'count(*)'"),
        ("SELECT count(*) AS price FROM t FACET price", 39, "two columns are called 'price'"),
        ("SELECT count(*) FROM t LIMIT 0", 24, "LIMIT has 0; possible are 1 to 10,000"),
        ("SELECT count(*) FROM t WINDOW 0 seconds", 24, "WINDOW is 0 seconds; possible are"),
        ("SELECT count(*) FROM t WINDOW 10 days", 24, "possible are 1 second to 1 day"),
        (
            "SELECT count(*) FROM t WINDOW 1 minute SLIDE BY 7 seconds",
            40,
            "1 minute is none of 7 seconds",
        ),
        ("SELECT count(*) FROM t WINDOW 2 minutes SLIDE BY 1 second", 41, "at most 60 windows"),
        ("SELECT count(*) FROM t SLIDE BY 2 minutes", 24, "SLIDE BY is 2 minutes"),
        ("SELECT count(*) FROM t ALLOWED LATENESS 2 days", 24, "ALLOWED LATENESS is 2 days"),
        ("SELECT count(*) FROM t CLOSE BY QUIET TIME 0 seconds", 24, "CLOSE BY is 0 seconds"),
        ("SELECT count(*) FROM t CLOSE BY CLOCK 2 hours", 24, "possible are 0 seconds to 1 hour"),
        ("SELECT count(*) FROM t EMIT EARLY EVERY 5 minutes", 24, "EMIT is 5 minutes"),
        ("SELECT count(*) FROM t LOSS OF SIGNAL AFTER 2000 WINDOWS", 24, "has 2,000"),
        (
            "SELECT count(*) FROM t CLOSE BY CLOCK 0 seconds ALLOWED LATENESS 30 seconds",
            49,
            "a window waits by the clock: give CLOSE BY that duration; leave ALLOWED LATENESS out",
        ),
        (
            "SELECT count(*) FROM t ALLOWED LATENESS 30 seconds CLOSE BY QUIET TIME 9 seconds",
            24,
            "leave ALLOWED LATENESS out",
        ),
        (
            "SELECT count(*) FROM t CLOSE BY QUIET TIME 9 seconds EMPTY WINDOWS EMIT",
            54,
            "leave EMPTY WINDOWS out",
        ),
        (
            "SELECT count(*) FROM t CLOSE BY QUIET TIME 9 seconds LOSS OF SIGNAL AFTER 3 WINDOWS",
            54,
            "leave LOSS OF SIGNAL AFTER out",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_the_place_and_the_reason(text, column, reason):
    with pytest.raises(QueryTextError) as raised:
        checked(text)
    assert reason in raised.value.reason
    assert raised.value.column == column


@pytest.mark.parametrize(
    ("results", "facets", "reason"),
    [
        (21, 0, "SELECT has 21; possible are 1 to 20"),
        (1, 6, "FACET has 6; possible are 0 to 5"),
    ],
)
def test_the_number_of_columns_is_limited(results, facets, reason):
    text = "SELECT " + ", ".join(f"count(*) AS n{n}" for n in range(results)) + " FROM t"
    if facets:
        text += " FACET " + ", ".join(f"price + {n}" for n in range(facets))
    with pytest.raises(QueryTextError, match=reason):
        checked(text)


DAY_LATE = "WINDOW 1 second ALLOWED LATENESS 1 day"
SLIDING = "WINDOW 60 seconds SLIDE BY 1 second"


@pytest.mark.parametrize(
    ("text", "column", "reason"),
    [
        (
            f"SELECT count(*) FROM t FACET campaign LIMIT 10000 {DAY_LATE}",
            39,
            (
                "WINDOW 1 second ALLOWED LATENESS 1 day makes 86,401 open windows, each of "
                "LIMIT 10,000 groups, with 1 value each: 864,010,000 values, and 1,000,000 "
                "are possible; lower LIMIT to 11 or shorten ALLOWED LATENESS"
            ),
        ),
        (
            "SELECT sum(price) FROM t FACET campaign WINDOW 1 second CLOSE BY CLOCK 1 hour",
            26,
            (
                "WINDOW 1 second CLOSE BY CLOCK 1 hour makes 3,601 open windows, each of "
                "LIMIT 1,000 groups, with 1 value each: 3,601,000 values, and 1,000,000 are "
                "possible; lower LIMIT to 277 or shorten CLOSE BY"
            ),
        ),
        (
            f"SELECT sum(price) FROM t FACET campaign {SLIDING} CLOSE BY QUIET TIME 1 hour",
            26,
            (
                "WINDOW 1 minute SLIDE BY 1 second CLOSE BY QUIET TIME 1 hour makes 3,660 "
                "open windows, each of LIMIT 1,000 groups, with 1 value each: 3,660,000 "
                "values, and 1,000,000 are possible; lower LIMIT to 273 or shorten CLOSE BY "
                "or lengthen SLIDE BY"
            ),
        ),
        (
            f"SELECT histogram(price, 0, 1, 100), percentile(price, 95) FROM t {DAY_LATE}",
            82,
            (
                "WINDOW 1 second ALLOWED LATENESS 1 day makes 86,401 open windows, each of 1 "
                "group, with 20 values each, where percentile and uniqueCount count as 10, "
                "and 10 buckets of histogram as 1: 1,728,020 values, and 1,000,000 are "
                "possible; shorten ALLOWED LATENESS"
            ),
        ),
        (
            f"SELECT histogram(price, 0, 1, 11) FROM t FACET campaign LIMIT 8334 {SLIDING}",
            57,
            (
                "WINDOW 1 minute SLIDE BY 1 second makes 60 open windows, each of LIMIT 8,334 "
                "groups, with 2 values each, where percentile and uniqueCount count as 10, "
                "and 10 buckets of histogram as 1: 1,000,080 values, and 1,000,000 are "
                "possible; lower LIMIT to 8,333 or lengthen SLIDE BY"
            ),
        ),
        (
            f"SELECT max(at) FROM t FACET card LIMIT 10000 {SLIDING} EMIT EARLY EVERY 1 second",
            82,
            (
                "WINDOW 1 minute SLIDE BY 1 second makes 60 open windows, each of LIMIT "
                "10,000 groups, with EMIT EARLY EVERY 1 second: up to 600,000 early results "
                "in a second, and 10,000 are possible; lower LIMIT to 166 or lengthen SLIDE "
                "BY or lengthen EMIT EARLY EVERY to 1 minute"
            ),
        ),
        (
            f"SELECT count(*) FROM t {DAY_LATE} EMIT EARLY EVERY 1 second",
            63,
            (
                "WINDOW 1 second ALLOWED LATENESS 1 day makes 86,401 open windows, each of 1 "
                "group, with EMIT EARLY EVERY 1 second: up to 86,401 early results in a "
                "second, and 10,000 are possible; shorten ALLOWED LATENESS"
            ),
        ),
    ],
)
def test_a_query_that_needs_too_much_is_refused_with_what_to_change(text, column, reason):
    with pytest.raises(QueryTextError) as raised:
        checked(text)
    assert (raised.value.reason, raised.value.column) == (reason, column)


@pytest.mark.parametrize(
    "text",
    [
        f"SELECT count(*) FROM t FACET campaign LIMIT 11 {DAY_LATE}",
        f"SELECT percentile(price, 95) FROM t {DAY_LATE}",
        "SELECT count(*) FROM t FACET campaign LIMIT 277 WINDOW 1 second CLOSE BY CLOCK 1 hour",
        f"SELECT histogram(price, 0, 1, 11) FROM t FACET campaign LIMIT 8333 {SLIDING}",
        f"SELECT histogram(price, 0, 1, 10) FROM t FACET campaign LIMIT 10000 {SLIDING}",
        "SELECT histogram(price, 0, 1, 100) FROM t FACET campaign LIMIT 10000 WINDOW 1 minute",
        f"SELECT count(*) FROM t FACET campaign LIMIT 166 {SLIDING} EMIT EARLY EVERY 1 second",
        f"SELECT count(*) FROM t FACET campaign LIMIT 10000 {SLIDING} EMIT EARLY EVERY 1 minute",
        "SELECT count(*) FROM t FACET campaign LIMIT 10000 EMIT EARLY EVERY 1 second",
        (
            "SELECT count(*) FROM t WINDOW 1 second ALLOWED LATENESS 9999 seconds "
            "EMIT EARLY EVERY 1 second"
        ),
    ],
)
def test_a_query_that_needs_no_more_than_is_possible_is_taken(text):
    checked(text)


def test_each_function_is_called():
    values = {ValueType.TEXT: "campaign", ValueType.NUMBER: "price"}
    for name, function in FUNCTIONS.items():
        call = f"{name}({', '.join(values[each] for each in function.arguments)})"
        query = checked(f"SELECT count(*) FROM t FACET {call}")
        assert result_types(query, SCHEMA)[call] is function.returns
