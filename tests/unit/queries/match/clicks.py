"""Clicks, and rules of queries about them."""

from __future__ import annotations

from datetime import datetime

import pyarrow as pa

from headrace.model.event import event_schema
from headrace.pipelines.source.decode.columns import arrow_schema
from headrace.queries.language import check_query, parse_query
from headrace.queries.match.shape import Rule, compile_query


class Click:
    user: int
    kind: str
    country: str | None
    price: float | None
    is_new: bool
    at: datetime


CLICKS = event_schema(Click)
_COLUMNS = arrow_schema(CLICKS)
DEFAULTS = {"user": 0, "kind": "view", "country": None, "price": None, "is_new": False, "at": 0}


def clicks(*rows):
    """Returns rows of events; what they lack is as in ``DEFAULTS``."""
    return pa.Table.from_pylist([DEFAULTS | row for row in rows], _COLUMNS)


def compiled(text):
    """Returns shape and constants of a query, or of one with this condition."""
    text = text if text.startswith("SELECT") else f"SELECT count(*) FROM clicks WHERE {text}"
    query = parse_query(text)
    check_query(query, CLICKS, text)
    return compile_query(query, CLICKS)


def rule(query_id, text):
    return Rule(query_id, *compiled(text))
