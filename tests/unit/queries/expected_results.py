"""Results of a query, as its topic has them."""

from __future__ import annotations

from headrace import QueryResult, ResultKind

REGISTERED = "2026-05-01T09:00:00Z"


def result(minute=0, country="PL", *, emission=1, kind=ResultKind.FINAL, **changes):
    """Returns the result of a window of one minute."""
    values = {
        "query": "a",
        "registered": REGISTERED,
        "revision": 1,
        "begin": f"2026-05-01T10:{minute:02}:00Z",
        "end": f"2026-05-01T10:{minute + 1:02}:00Z",
        "emission": emission,
        "kind": kind,
        "facets": {"country": country},
        "is_other": False,
        "values": {"count(*)": emission},
        "events": emission,
    }
    return QueryResult(**values | changes)
