"""Whether events can be taken, topic by topic, for probes that may ask often."""

from __future__ import annotations

from collections.abc import Collection
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs

from headrace.ingest.events.event_store import READY, SPOOLING, EventStore
from headrace.ingest.http.problem import RETRY_AFTER, refused
from headrace.ingest.http.request import Answer, json_answer, problem_answer

_TAKEN = frozenset({READY, SPOOLING})


def readiness(
    query: bytes, topics: Collection[str], acceptance: EventStore, *, tokens_known: bool
) -> Answer:
    """Returns 200 when tokens are known and events of every topic can be taken, otherwise 503.

    ``topic=NAME`` in the query, once or more, limits the answer to these topics. Everything is
    answered from memory.

    Raises:
        RefusedRequestError: 404 for a topic that is not served.
    """
    names = parse_qs(query.decode("latin-1"), keep_blank_values=True).get("topic", topics)
    for topic in names:
        if topic not in topics:
            detail = f"no topic {topic[:80]!r} is served here"
            raise refused(HTTPStatus.NOT_FOUND, "no-such-topic", detail)
    # A topic that spools is ready: the disk takes its events.
    standings = {topic: acceptance.standing(topic) for topic in names}
    facts: dict[str, Any] = {
        "tokens": "known" if tokens_known else "unknown",
        "kafka": "answers" if acceptance.kafka_answers else "away",
        "topics": standings,
    }
    if tokens_known and _TAKEN.issuperset(standings.values()):
        return json_answer(HTTPStatus.OK, {"status": "ready", **facts})
    waits_for = [] if tokens_known else ["the access tokens have not been read yet"]
    waits_for += [f"{topic}: {text}" for topic, text in standings.items() if text not in _TAKEN]
    why = "; ".join(waits_for)
    refusal = refused(HTTPStatus.SERVICE_UNAVAILABLE, "not-ready", why, RETRY_AFTER)
    return problem_answer(refusal, **facts)
