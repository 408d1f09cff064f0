"""The registry of standing queries of a project, on a topic in memory."""

from __future__ import annotations

import itertools
import json
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from tests.registered import (
    cancel_query,
    register_query,
    registered_queries,
    registered_query,
    update_query,
)
from tests.unit.queries.registry.flow import FLOW, write_project
from tests.unit.queries.registry.memory_topic import MemoryTopic

from headrace.errors import (
    NotDeclaredError,
    QueryIdTakenError,
    QueryInvalidError,
    QueryMissingError,
    QueryTextError,
    QueryUnmatchedError,
)
from headrace.project.check import load_project
from headrace.queries.registry import registrations as query_registry
from headrace.queries.registry import writer
from headrace.queries.registry.record import encode_query
from headrace.queries.registry.registrations import (
    CancelledQuery,
    QueryRegistry,
    QueryState,
    event_topics,
)
from headrace.settings import load_settings

NOW = datetime(2026, 5, 1, 10, tzinfo=UTC)
COUNT = "SELECT count(*)\nFROM clicks\nWINDOW 1 minute"
SUM = "SELECT sum(price)\nFROM clicks\nWINDOW 1 minute"


class Clock:
    """The time that the registry sees."""

    now = NOW

    def advance(self, **duration):
        self.now += timedelta(**duration)


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(query_registry, "datetime", SimpleNamespace(now=lambda _: clock.now))
    return clock


@pytest.fixture
def topic(monkeypatch):
    return MemoryTopic(monkeypatch)


@pytest.fixture
def load(tmp_path, monkeypatch):
    """``load(flow)``: a project of a module."""
    monkeypatch.setattr(sys, "path", list(sys.path))

    def project(flow=FLOW):
        return load_project(load_settings(write_project(tmp_path, flow), {}))

    return project


@pytest.fixture
def project(load, clock, topic):
    return load()


def states(project):
    return {entry.id: entry.state.value for entry in registered_queries(project)}


def test_a_query_is_registered_with_its_canonical_text_and_lives_for_max_ttl(project, topic):
    query = register_query(project, "select count(*) from clicks", query_id="a")
    assert (query.id, query.text, query.topic, query.revision) == ("a", COUNT, "clicks", 1)
    assert query.registered_at == query.updated_at == NOW
    assert query.expires_at == NOW + timedelta(hours=1)
    assert (query.offset, topic.ensured) == (0, ["ads"])
    assert topic.records == {"ads.queries": [encode_query(query)]}


def test_a_record_has_what_spares_readers_the_parser(project, topic):
    text = "SELECT count(*) FROM clicks WHERE country IN ('PL', 'DE') AND price > {}"
    first = register_query(project, text.format(1), query_id="a")
    second = register_query(project, text.format(2.5), query_id="b")
    assert repr(first.constants) == "((('PL', 'DE'),), (1.0,))"
    assert second.constants == ((("PL", "DE"),), (2.5,))
    assert first.shape == second.shape is not None
    changed = update_query(project, "a", COUNT)
    assert (changed.shape != first.shape, changed.constants) == (True, ())
    assert topic.records["ads.queries"][-1] == encode_query(changed)


def test_a_query_of_an_earlier_version_is_renewed_with_its_constants(project, topic):
    query = register_query(project, COUNT, query_id="a")
    topic.write({}, "ads.queries", *encode_query(replace(query, shape=None, constants=None)))
    for renewed in (register_query(project, COUNT, query_id="a"), update_query(project, "a")):
        assert (renewed.shape, renewed.constants) == (query.shape, ())


def test_a_random_id_is_a_word_of_twelve_letters_and_digits(project):
    ids = {register_query(project, COUNT).id for _ in range(20)}
    assert len(ids) == 20
    assert all(len(query_id) == 12 and query_id.isalnum() for query_id in ids)


def test_the_same_text_again_renews_a_query_and_leaves_its_revision(project, clock):
    register_query(project, COUNT, query_id="a")
    clock.advance(minutes=30)
    again = register_query(project, "SELECT  count(*)  FROM clicks", query_id="a")
    assert (again.revision, again.registered_at, again.updated_at) == (1, NOW, clock.now)
    assert again.expires_at == clock.now + timedelta(hours=1)
    assert again.offset == 1


def test_another_text_for_a_live_id_is_refused(project, topic):
    register_query(project, COUNT, query_id="a")
    with pytest.raises(QueryIdTakenError, match=r"headrace query update a TEXT"):
        register_query(project, SUM, query_id="a")
    assert len(topic.records["ads.queries"]) == 1


def test_the_id_of_an_expired_query_is_free(project, clock):
    register_query(project, COUNT, query_id="a")
    clock.advance(hours=1)
    query = register_query(project, SUM, query_id="a")
    assert (query.text, query.revision, query.registered_at) == (SUM, 1, clock.now)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"query_id": ""}, "id"),
        ({"query_id": "a" * 101}, "1 to 100 letters"),
        ({"query_id": "a.b"}, "value 'a.b'"),
        ({"ttl": timedelta(0)}, "it must be above zero"),
        (
            {"ttl": timedelta(minutes=61)},
            r"is 1:00:00 \(3,600 s\); renew the query before it ends",
        ),
        ({"ttl": 60}, "expected a timedelta"),
    ],
)
def test_values_that_are_not_possible_are_named(project, topic, options, message):
    with pytest.raises(QueryInvalidError, match=message):
        register_query(project, COUNT, **options)
    assert topic.records == {}


def test_without_a_max_ttl_a_query_lives_until_it_is_cancelled(load, clock, topic):
    project = load(FLOW.replace('StandingQueries("ads")', 'StandingQueries("ads", max_ttl=None)'))
    assert register_query(project, COUNT).expires_at is None
    short = register_query(project, COUNT, ttl=timedelta(days=100))
    assert short.expires_at == NOW + timedelta(days=100)
    with pytest.raises(QueryInvalidError, match="after the year 9999"):
        register_query(project, COUNT, ttl=timedelta(weeks=999_999))


def test_a_query_whose_events_no_pipeline_matches_is_refused(project):
    assert list(event_topics(project, "ads")) == ["clicks"]
    assert event_topics(project, "other") == {}
    with pytest.raises(QueryUnmatchedError, match="matched 'clicks'") as raised:
        register_query(project, "SELECT count(*) FROM views")
    assert 'Pipeline("match-views", views, MatchQueries(ads))' in str(raised.value)


def test_a_text_that_does_not_fit_its_topic_is_refused(project):
    with pytest.raises(QueryTextError, match="no field 'prize'"):
        register_query(project, "SELECT sum(prize) FROM clicks")


@pytest.mark.parametrize(
    ("more", "name", "message"),
    [
        ("", "bds", "declared 'ads'"),
        ('more = StandingQueries("more")', None, "declared 'ads, more'"),
    ],
)
def test_standing_queries_are_to_be_named_where_there_is_a_choice(load, topic, more, name, message):
    project = load(FLOW + more)
    with pytest.raises(NotDeclaredError, match=message):
        register_query(project, COUNT, queries=name)


def test_an_update_renews_a_query_and_counts(project, clock):
    register_query(project, COUNT, query_id="a")
    clock.advance(minutes=59)
    renewed = update_query(project, "a", ttl=timedelta(minutes=5))
    assert (renewed.text, renewed.revision, renewed.registered_at) == (COUNT, 1, NOW)
    assert renewed.expires_at == clock.now + timedelta(minutes=5)
    changed = update_query(project, "a", SUM)
    assert (changed.text, changed.revision) == (SUM, 2)
    assert registered_query(project, "a").query == changed


def test_renewals_keep_the_time_since_when_a_query_has_its_text(project, clock, write_between):
    register_query(project, COUNT, query_id="a")
    clock.advance(minutes=1)
    assert register_query(project, COUNT, query_id="a").text_changed_at == NOW
    updated = update_query(project, "a", SUM)
    clock.advance(minutes=1)
    for renewed in (update_query(project, "a"), update_query(project, "a", SUM)):
        assert renewed.text_changed_at == updated.updated_at == NOW + timedelta(minutes=1)
    write_between(lambda: update_query(project, "a", COUNT))
    assert update_query(project, "a").text_changed_at == clock.now


def test_a_renewal_that_always_meets_an_update_is_written_five_times(project, topic, monkeypatch):
    query = register_query(project, COUNT, query_id="a")
    revisions = itertools.count(2)

    def write_after_another(config, name, key, value):
        revision = next(revisions)
        text = COUNT.replace("WINDOW", f"LIMIT {revision}\nWINDOW")
        other = replace(query, text=text, revision=revision)
        topic.write(config, name, *encode_query(other))
        return topic.write(config, name, key, value)

    monkeypatch.setattr(writer, "write_registry", write_after_another)
    assert update_query(project, "a").offset == 2 * 5
    assert len(topic.records["ads.queries"]) == 1 + 2 * 5


def test_an_update_that_another_one_overtakes_is_not_written_again(project, topic, monkeypatch):
    query = register_query(project, COUNT, query_id="a")

    def write_after_another(config, name, key, value):
        revision = json.loads(value)["revision"]
        topic.write(config, name, *encode_query(replace(query, revision=revision)))
        return topic.write(config, name, key, value)

    monkeypatch.setattr(writer, "write_registry", write_after_another)
    assert update_query(project, "a", SUM).revision == 3
    found = registered_query(project, "a").query
    assert (found.text, found.revision) == (COUNT, 3)


@pytest.fixture
def write_between(monkeypatch, topic):
    """``write_between(*acts)``: one act before each of the next records is written."""

    def before_writes(*acts):
        coming = list(acts)

        def write_after_another(*record):
            if coming:
                with monkeypatch.context() as unchanged:
                    unchanged.setattr(writer, "write_registry", topic.write)
                    coming.pop(0)()
            return topic.write(*record)

        monkeypatch.setattr(writer, "write_registry", write_after_another)

    return before_writes


@pytest.mark.parametrize("text", [None, SUM])
def test_an_update_that_meets_a_cancellation_leaves_the_query_cancelled(
    project, topic, write_between, text
):
    register_query(project, COUNT, query_id="a")
    write_between(lambda: cancel_query(project, "a"))
    with pytest.raises(QueryMissingError, match="it was cancelled; register it again"):
        update_query(project, "a", text)
    assert states(project) == {}
    assert [value is None for _, value in topic.records["ads.queries"]] == [
        False,
        True,
        False,
        True,
    ]


def test_a_tombstone_that_is_written_again_ends_no_later_registration(
    project, clock, topic, write_between
):
    query = register_query(project, COUNT, query_id="a")
    at = NOW + timedelta(seconds=1)
    later = replace(query, text=SUM, registered_at=at, updated_at=at)
    write_between(
        lambda: cancel_query(project, "a"),
        lambda: topic.write({}, "ads.queries", *encode_query(later)),
    )
    with pytest.raises(QueryMissingError):
        update_query(project, "a")
    entry = registered_query(project, "a")
    assert (entry.query, entry.offset) == (later, 5)


def test_an_update_that_meets_another_registration_is_one_of_it(project, clock, write_between):
    register_query(project, COUNT, query_id="a")
    clock.advance(minutes=1)

    def register_anew():
        cancel_query(project, "a")
        register_query(project, SUM, query_id="a")

    write_between(register_anew)
    clock.advance(minutes=1)
    renewed = update_query(project, "a")
    assert (renewed.text, renewed.revision) == (SUM, 1)
    assert renewed.registered_at == NOW + timedelta(minutes=2)
    assert registered_query(project, "a").query == renewed


def test_a_renewal_takes_the_text_and_revision_of_an_update_that_it_meets(
    project, clock, write_between
):
    register_query(project, COUNT, query_id="a")
    write_between(lambda: update_query(project, "a", SUM))
    renewed = update_query(project, "a", ttl=timedelta(minutes=5))
    assert (renewed.text, renewed.revision, renewed.offset) == (SUM, 2, 3)
    assert renewed.expires_at == NOW + timedelta(minutes=5)
    assert registered_query(project, "a").query == renewed


def test_a_renewal_gives_an_update_that_it_has_misled_a_revision_of_its_own(project, write_between):
    register_query(project, COUNT, query_id="a")
    other = f"{COUNT} LIMIT 7"
    write_between(
        lambda: update_query(project, "a", SUM), lambda: update_query(project, "a", other)
    )
    renewed = update_query(project, "a")
    assert (renewed.text, renewed.revision) == (COUNT.replace("WINDOW", "LIMIT 7\nWINDOW"), 3)


def test_a_repeated_registration_that_meets_an_update_is_refused(project, write_between):
    register_query(project, COUNT, query_id="a")
    write_between(lambda: update_query(project, "a", SUM))
    with pytest.raises(QueryIdTakenError) as raised:
        register_query(project, COUNT, query_id="a")
    assert raised.value.revision == 2
    query = registered_query(project, "a").query
    assert (query.text, query.revision, query.offset) == (SUM, 2, 3)


def test_a_registration_that_meets_one_about_another_topic_is_refused(
    load, clock, topic, write_between
):
    """Who follows the results of the first one may read the events of its topic."""
    project = load(FLOW + 'match_views = Pipeline("match-views", views, StandIn(ads))\n')
    write_between(lambda: register_query(project, COUNT, query_id="a"))
    with pytest.raises(QueryIdTakenError):
        register_query(project, COUNT.replace("clicks", "views"), query_id="a")
    query = registered_query(project, "a").query
    assert (query.text, query.revision) == (COUNT, 1)


def test_a_registration_that_meets_one_and_its_update_is_refused(project, clock, write_between):
    def register_and_update():
        register_query(project, COUNT, query_id="a")
        update_query(project, "a", SUM)

    write_between(register_and_update)
    with pytest.raises(QueryIdTakenError):
        register_query(project, COUNT, query_id="a")
    query = registered_query(project, "a").query
    assert (query.text, query.revision) == (SUM, 2)


def test_a_correction_does_not_register_a_query_that_is_cancelled_meanwhile(
    project, clock, write_between
):
    def register_theirs():
        clock.advance(seconds=1)
        register_query(project, COUNT, query_id="a")

    write_between(register_theirs, lambda: cancel_query(project, "a"))
    assert register_query(project, COUNT, query_id="a").revision == 1
    assert states(project) == {}


def test_a_correction_undoes_no_update_of_a_client_that_has_seen_its_record(
    project, clock, topic, write_between
):
    query = register_query(project, COUNT, query_id="a")
    other = f"{COUNT} LIMIT 7"
    third = replace(query, text=f"{SUM} LIMIT 9", revision=3)
    write_between(
        lambda: update_query(project, "a", SUM),
        lambda: topic.write({}, "ads.queries", *encode_query(third)),
    )
    update_query(project, "a", other)
    found = registered_query(project, "a").query
    assert (found.text, found.revision) == (third.text, 3)


@pytest.mark.parametrize("seconds", [-1, 1])
def test_equal_registrations_at_once_have_the_time_of_the_first_record(
    project, clock, write_between, seconds
):
    def register_theirs():
        clock.advance(seconds=seconds)
        register_query(project, COUNT, query_id="a")

    write_between(register_theirs)
    query = register_query(project, COUNT, query_id="a")
    assert (query.registered_at, query.revision) == (NOW + timedelta(seconds=seconds), 1)
    assert registered_query(project, "a").query == query


def test_a_registration_that_renews_a_query_which_is_cancelled_meanwhile_is_a_new_one(
    project, clock, write_between
):
    register_query(project, COUNT, query_id="a")
    clock.advance(minutes=1)
    write_between(lambda: cancel_query(project, "a"))
    query = register_query(project, COUNT, query_id="a")
    assert (query.registered_at, query.revision) == (clock.now, 1)
    assert registered_query(project, "a").query == query


def test_an_update_needs_a_live_query(project, clock, topic):
    register_query(project, COUNT, query_id="clicks-by-country")
    with pytest.raises(QueryMissingError, match="did you mean 'clicks-by-country'"):
        update_query(project, "click-by-country")
    with pytest.raises(QueryMissingError, match="no id is like it"):
        update_query(project, "zzz")
    clock.advance(hours=1)
    with pytest.raises(QueryMissingError, match="it expired at 2026-05-01 11:00"):
        update_query(project, "clicks-by-country")
    topic.write({}, "ads.queries", b"b", b"junk")
    with pytest.raises(QueryMissingError, match="its record is faulty"):
        update_query(project, "b")
    assert len(topic.records["ads.queries"]) == 2


def test_an_update_is_checked_as_a_registration_is(project, load, topic):
    register_query(project, COUNT, query_id="a")
    with pytest.raises(QueryTextError):
        update_query(project, "a", "SELECT sum(prize) FROM clicks")
    changed = load(FLOW.replace("clicks, StandIn", "views, StandIn"))
    with pytest.raises(QueryUnmatchedError):
        update_query(changed, "a")


def test_an_update_keeps_the_topic(load, clock, topic):
    """Its results are for those who may read the events of that topic."""
    project = load(FLOW + 'match_views = Pipeline("match-views", views, StandIn(ads))\n')
    register_query(project, COUNT, query_id="a")
    with pytest.raises(QueryInvalidError) as error:
        update_query(project, "a", COUNT.replace("clicks", "views"))
    assert "an update keeps the topic, 'clicks'" in str(error.value)
    assert registered_query(project, "a").query.topic == "clicks"
    assert len(topic.records["ads.queries"]) == 1


def test_queries_are_cancelled_all_or_none(project, clock, topic):
    for query_id in "ab":
        register_query(project, COUNT, query_id=query_id)
    topic.write({}, "ads.queries", b"c", b"junk")
    clock.advance(hours=2)
    with pytest.raises(QueryMissingError):
        cancel_query(project, "a", "unknown")
    assert states(project) == {"a": "expired", "b": "expired", "c": "faulty"}
    cancelled = cancel_query(project, "a", "c", "a")
    assert cancelled == [CancelledQuery("a", 3), CancelledQuery("c", 4)]
    assert states(project) == {"b": "expired"}


def test_a_cancelled_id_is_no_unknown_one(project):
    register_query(project, COUNT, query_id="a")
    cancel_query(project, "a")
    for ask in (update_query, registered_query, cancel_query):
        with pytest.raises(QueryMissingError, match="it was cancelled; register it again"):
            ask(project, "a")


def test_why_a_query_has_no_further_results(project, clock, topic):
    registry = QueryRegistry(project)
    for query_id in "ab":
        registry.register(COUNT, query_id)
    topic.write({}, "ads.queries", b"junk", b"junk")
    registry.cancel("b")
    assert [registry.ended(each) for each in ("a", "junk")] == ["", ""]
    assert registry.ended("b") == "Query 'b' was cancelled: it has no further results."
    assert registry.ended("c").startswith("Query 'c' was cancelled, or has expired:")
    clock.advance(hours=1)
    assert registry.ended("a").startswith("Query 'a' expired at 2026-05-01 11:00:00+00:00:")


def test_values_that_are_not_declared_are_refused_of_new_texts_alone(load, topic):
    declared = 'country: Literal["PL", "DE"]'
    literal = FLOW.replace("import ClassVar", "import ClassVar, Literal")
    text = "SELECT count(*) FROM clicks WHERE country = 'FR'"
    query = register_query(load(), text, query_id="a")
    project = load(literal.replace("country: str", declared))
    assert states(project) == {"a": "live"}
    assert register_query(project, text, query_id="a").text == query.text
    assert update_query(project, "a").text == query.text
    for refused in (text, f"{text} FACET price"):
        with pytest.raises(QueryTextError, match="country is never 'FR'; possible are 'PL', 'DE'"):
            register_query(project, refused, query_id="b")
    with pytest.raises(QueryTextError, match="country is never 'FR'"):
        update_query(project, "a", f"{text} FACET price")


def test_a_registry_that_is_held_reads_what_is_new_alone(project, topic):
    registry = QueryRegistry(project)
    first = registry.register(COUNT, "a")
    register_query(project, COUNT, query_id="b")
    topic.taken.clear()
    assert [entry.id for entry in registry.entries()] == ["a", "b"]
    assert topic.taken == [0, 1]
    renewed = registry.update("a")
    assert registry.entry("a").query == renewed
    assert registry.entry("a").first.offset == first.offset
    registry.cancel("a")
    assert [entry.id for entry in registry.entries()] == ["b"]
    assert topic.taken == [0, 1, 2, 3]


def test_a_list_is_in_the_order_of_registration_with_faulty_records_at_its_end(
    project, clock, topic
):
    topic.write({}, "ads.queries", b"0", b"junk")
    register_query(project, COUNT, query_id="late", ttl=timedelta(seconds=1))
    clock.advance(seconds=1)
    register_query(project, COUNT, query_id="early")
    update_query(project, "early")
    assert list(states(project).items()) == [
        ("late", "expired"),
        ("early", "live"),
        ("0", "faulty"),
    ]


def test_a_query_that_fits_its_topic_no_more_is_shown_with_the_reason(project, load):
    query = register_query(project, SUM, query_id="a")
    changed = load(FLOW.replace("price", "cost"))
    entry = registered_query(changed, "a")
    assert registered_queries(changed) == [entry]
    assert (entry.state, entry.query) == (QueryState.FAULTY, query)
    assert "no field 'price'" in entry.reason


def test_a_faulty_record_is_shown_and_can_be_registered_over(project, topic):
    topic.write({}, "ads.queries", b"a", json.dumps({"id": "a"}).encode())
    entry = registered_query(project, "a")
    assert (entry.state, entry.offset, entry.query) == (QueryState.FAULTY, 0, None)
    assert "`text`" in entry.reason
    assert register_query(project, COUNT, query_id="a").revision == 1
    assert states(project) == {"a": "live"}
    with pytest.raises(QueryMissingError):
        registered_query(project, "b")


def test_the_clock_is_to_the_millisecond(load, topic):
    query = register_query(load(), COUNT)
    assert replace(registered_query(load(), query.id).query, offset=-1) == query
    assert query.registered_at.microsecond % 1_000 == 0
