"""Nested events over HTTP: as strict as the pipelines' decoder, keys and ids by path."""

import json
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.contracts.json_records import POISON, Impression, good

from headrace.ingest.events.json_limits import JsonLimits
from headrace.ingest.events.validation import Accepted, EventCheck
from headrace.ingest.openapi import openapi
from headrace.model import ByField, Json, Topic, partition_of
from headrace.pipelines.source.decode import decoder_for
from headrace.settings import IngestSettings

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
LIMITS = JsonLimits(depth=64, keys=1000, string_bytes=65_536)


@dataclass
class Owner:
    login: str
    id: int


@dataclass
class Repo:
    full_name: str
    owner: Owner | None
    pushed_at: datetime | None


@dataclass
class Push:
    at: datetime
    repo: Repo
    commits: list[Repo]
    prices: dict[str, Decimal] | None
    day: date | None
    body: bytes | None
    payload: Any


TOPIC = Topic("pushes", event=Push, event_time="at", key="repo.full_name", partitions=8)
PUSH = {"at": "2026-05-01T11:00:00Z", "repo": {"full_name": "a/b"}, "commits": []}


def push(**changes):
    return json.dumps(PUSH | changes).encode()


def verdict(event, topic=TOPIC):
    accepted, rejected = EventCheck(topic, LIMITS, NOW.timestamp).batch([event], "acme", ())
    return accepted[0] if accepted else (rejected[0].code, rejected[0].detail)


def test_a_nested_event_is_sent_as_it_came_with_the_key_at_its_path():
    event = push(payload={"any": [1]}, prices={"eur": "1.50"}, day="2026-05-01", body="AA==")
    accepted = verdict(event)
    assert (accepted.value, accepted.key) == (event, b"a/b")


def test_an_event_id_may_be_nested():
    topic = Topic("pushes", event=Push, event_id="repo.owner.login")
    assert verdict(push(repo={"full_name": "f", "owner": {"login": "x", "id": 1}}), topic).event_id
    code, detail = verdict(push(), topic)
    assert (code, detail[:41]) == ("bad-event-id", "field 'repo.owner.login' is missing or em")


def test_a_partition_may_be_that_of_a_nested_field():
    topic = Topic("pushes", event=Push, partitions=8, partitioning=ByField("repo.full_name"))
    expected = partition_of(ByField("name"), 8)({"name": "a/b"}, "", NOW)
    assert verdict(push(), topic).partition == expected


@pytest.mark.parametrize(
    ("event", "code", "words"),
    [
        (push(repo={}), "missing-field", "field 'repo.full_name' is missing"),
        (push(repo={"full_name": ""}), "bad-key", "field 'repo.full_name' is null or empty"),
        (push(repo=None), "wrong-type", "field 'repo' is null, expected an object"),
        (
            push(repo={"full_name": "f", "pushed_at": "yesterday"}),
            "wrong-type",
            "field 'repo.pushed_at' is a string that is not an RFC 3339 time",
        ),
        (
            push(commits=[{"full_name": "f"}, {"full_name": 5}]),
            "wrong-type",
            "field 'commits[1].full_name' is an integer, expected a string",
        ),
        (
            push(commits=[{"full_name": "f", "owner": {"login": "x", "id": 2**63 - 0.5}}]),
            "wrong-type",
            "field 'commits[0].owner.id' is a number with a fraction",
        ),
        (push(prices={"eur": "1,5"}), "wrong-type", "prices['eur']"),
        (push(prices={"eur": 1e30}), "out-of-range", "prices['eur']"),
        (push(day="2026-02-30"), "wrong-type", "field 'day' is a string that is not a date"),
        (push(body="AA"), "wrong-type", "field 'body' is a string that is not base64"),
        (push(at="2026-05-01"), "wrong-type", "field 'at' is a string that is not"),
        (push(at="1999-05-01T00:00:00Z"), "event-time-out-of-bounds", "field 'at' is 1999-05-01"),
    ],
)
def test_a_rejection_names_the_path_of_the_field(event, code, words):
    found, detail = verdict(event)
    assert found == code
    assert words in detail


@dataclass
class Nest:
    shown: Impression


NEST = Topic("nests", event=Nest)
# The service looks at the structure of the whole event first, its pipelines' decoder does not.
OF_STRUCTURE = {"repeated-key", "too-deep", "out-of-range", "nul-character", "text-too-long"}


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(value, id=name)
        for name, (value, reason) in POISON.items()
        if reason not in ("null-value", "event-time-out-of-bounds", "unsafe-partition-value")
    ],
)
def test_what_a_pipeline_rejects_is_rejected_over_http(value):
    event = b'{"shown": ' + value + b"}"
    (code, _) = decoder_for(Json(), NEST.schema).decode([event]).rejected[0]
    found, _ = verdict(event, NEST)
    assert found == code or found in OF_STRUCTURE


def test_a_good_event_of_the_pipelines_is_good_over_http():
    assert verdict(b'{"shown": ' + good(7) + b"}", NEST).value


TEXTS = st.sampled_from(["x", "2026-05-01", "2026-05-01T11:00:00Z", "AA==", "1.5", ""])


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "day": TEXTS | st.none(),
            "body": TEXTS | st.none(),
            "prices": st.dictionaries(st.sampled_from("ab"), TEXTS | st.integers(0, 9)),
            "commits": st.lists(
                st.fixed_dictionaries({"full_name": TEXTS}, optional={"pushed_at": TEXTS})
            ),
        },
    )
)
def test_http_accepts_what_the_decoder_reads(changes):
    event = push(**changes)
    is_row = not decoder_for(Json(), TOPIC.schema).decode([event]).rejected
    assert isinstance(verdict(event), Accepted) == is_row


def test_the_description_of_an_event_shows_what_is_nested():
    topic = Topic("pushes", event=Push, event_id="repo.full_name", key="repo.owner.login")
    schemas = openapi([topic], IngestSettings())["components"]["schemas"]
    schema, repo, owner = schemas["Push"], schemas["Repo"], schemas["Owner"]
    assert schema["required"] == ["at", "repo", "commits"]
    assert schema["properties"]["repo"] == {"$ref": "#/components/schemas/Repo"}
    assert (repo["type"], repo["required"]) == ("object", ["full_name"])
    assert repo["properties"]["full_name"]["pattern"] == "^[!-~]{1,256}$"
    assert repo["properties"]["owner"] == {
        "anyOf": [{"$ref": "#/components/schemas/Owner"}, {"type": "null"}],
    }  # fmt: skip
    assert owner["properties"]["login"]["minLength"] == 1
    assert owner["properties"]["id"] == {
        "type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1,
    }  # fmt: skip
    commits = schema["properties"]["commits"]
    assert commits["type"] == "array"
    assert commits["items"] == {"$ref": "#/components/schemas/Repo.pushes"}
    assert "pattern" not in schemas["Repo.pushes"]["properties"]["full_name"]
    prices = schema["properties"]["prices"]
    assert prices["type"] == ["object", "null"]
    assert prices["additionalProperties"]["type"] == ["number", "string"]
    assert schema["properties"]["day"] == {"type": ["string", "null"], "format": "date"}
    assert schema["properties"]["payload"] == {}


def test_a_class_is_described_once_if_it_is_described_alike():
    topics = [Topic("a", event=Push), Topic("b", event=Push), Topic("owners", event=Owner)]
    schemas = openapi(topics, IngestSettings())["components"]["schemas"]
    assert schemas.keys() == {"Push.a", "Push.b", "Repo", "Owner", "Problem", "Accepted"}
    topics[1] = Topic("b", event=Push, event_id="repo.owner.login")
    schemas = openapi(topics, IngestSettings())["components"]["schemas"]
    assert schemas.keys() >= {"Repo", "Repo.b", "Owner", "Owner.b"}
    assert "pattern" in schemas["Owner.b"]["properties"]["login"]
