"""Results of a standing query: each group of a window once, and only of ids that are known."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from weakref import WeakValueDictionary

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.registered import cancel_query, register_query
from tests.unit.queries.expected_results import result
from tests.unit.queries.registry.flow import write_project
from tests.unit.queries.registry.memory_topic import MemoryTopic

from headrace import ResultKind
from headrace.errors import NotDeclaredError, QueryMissingError, TopicMissingError
from headrace.kafka.client.admin_requests import LiveTopic
from headrace.project.check import load_project
from headrace.queries.results import results as query_results
from headrace.queries.results.results import (
    ResultOptions,
    find_results,
    newest_results,
    unrepeated,
)
from headrace.settings import load_settings

EARLY = ResultKind.EARLY
COUNT = "SELECT count(*) FROM clicks"


def stored(result):
    """Returns a record as a reader of a range gets it."""
    record = followed(result)
    return SimpleNamespace(key=lambda: record.key, value=lambda: record.value)


def followed(result):
    """Returns a record as one who follows a topic gets it."""
    return SimpleNamespace(key=result.query.encode(), value=msgspec.json.encode(result))


class ResultsTopic:
    """The topic of results, in place of Kafka's.

    Attributes:
        known: results that it has.
        coming: results that come later.
        live: as brokers describe it; None: there is none.
    """

    def __init__(self, monkeypatch):
        self.known, self.coming = [], []
        self.live = LiveTopic("ads.results", "id", 8, 1)
        monkeypatch.setattr(query_results, "broker_config", lambda settings: {})
        monkeypatch.setattr(query_results, "describe", self._describe)
        monkeypatch.setattr(query_results, "watermarks", lambda config, places: {places[0]: (0, 9)})
        monkeypatch.setattr(query_results, "read_records", lambda *_: map(stored, self.known))
        monkeypatch.setattr(query_results, "follow", lambda *_: map(followed, self.coming))

    def _describe(self, config, names):
        return {} if self.live is None else {"ads.results": self.live}


@pytest.fixture
def topic(monkeypatch):
    return ResultsTopic(monkeypatch)


@pytest.fixture
def project(tmp_path, monkeypatch, topic):
    monkeypatch.setattr(sys, "path", list(sys.path))
    MemoryTopic(monkeypatch)
    project = load_project(load_settings(write_project(tmp_path), {}))
    register_query(project, COUNT, query_id="a")
    return project


def read(project, query_id="a", **options):
    return list(find_results(project, query_id, ResultOptions(**options)).results)


def test_a_repeated_result_and_an_older_one_do_not_count():
    first, second = result(emission=1, kind=EARLY), result(emission=2)
    assert list(unrepeated([first, first, second, first, second])) == [first, second]


def test_groups_and_windows_and_registrations_are_kept_apart():
    results = [
        result(),
        result(country="DE"),
        result(is_other=True),
        result(minute=1),
        result(revision=2),
        result(registered="2026-05-01T09:30:00Z"),
    ]
    assert list(unrepeated(results)) == results


def test_a_loss_of_signal_stands_beside_the_empty_window():
    empty = result(kind=ResultKind.EMPTY, facets={}, emission=0)
    lost = result(kind=ResultKind.LOST, facets={}, emission=0)
    assert newest_results([empty, lost]) == [empty, lost]


def test_a_final_result_takes_the_place_of_an_empty_window():
    empty, final = result(kind=ResultKind.EMPTY, facets={}, emission=0), result()
    assert list(unrepeated([empty, empty, final])) == [empty, final]
    assert newest_results([empty, final]) == [final]


def test_a_group_that_became_one_of_the_others_counts_with_them_alone():
    early = [result(country="PL", kind=EARLY), result(country="DE", kind=EARLY)]
    final = [result(country="PL", emission=2), result(facets={}, emission=2, is_other=True)]
    assert newest_results([*early, *final]) == final


def test_the_newest_window_comes_last():
    assert newest_results([result(5), result(3), result(4)]) == [result(3), result(4), result(5)]


class Facets(dict):
    """Facets of which it is known whether something still holds them."""


def test_memory_is_bounded_by_the_limit_and_not_by_what_the_topic_has():
    held, counts = WeakValueDictionary(), []

    def results():
        for number in range(500):
            facets = held[number] = Facets(country=str(number))
            counts.append(len(held))
            yield result(number // 100, facets=facets, events=number)

    newest = newest_results(results(), limit=3, min_at_once=4)
    assert [each.events for each in newest] == [497, 498, 499]
    assert max(counts) < 30


def test_results_that_are_read_in_parts_are_the_same():
    written = [result(minute, kind=EARLY) for minute in range(9)]
    written += [result(minute, country, emission=2) for minute in range(9) for country in "ab"]
    whole = newest_results([*written, *written])
    newest = newest_results([*written, *written], limit=4, min_at_once=5)
    assert newest == whole[-4:]
    assert len(whole) == 18


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from("ab"), st.integers(1, 4))))
def test_repeats_after_a_restart_change_nothing(written):
    results = [result(minute, country, emission=number) for minute, country, number in written]
    assert newest_results([*results, *results]) == newest_results(results)


def test_followed_groups_are_forgotten_at_a_limit():
    results = [result(0), result(1), result(2), result(1), result(0)]
    assert list(unrepeated(results, max_groups=2)) == [result(0), result(1), result(2), result(0)]


def test_results_that_are_there_are_the_newest_and_limited(project, topic):
    topic.known = [result(0, kind=EARLY), result(0, emission=2), result(1)]
    assert read(project) == [result(0, emission=2), result(1)]
    assert read(project, limit=1) == [result(1)]


def test_following_goes_on_with_what_comes_and_repeats_nothing(project, topic):
    topic.known, topic.coming = [result(0, kind=EARLY)], [result(0, kind=EARLY), result(1)]
    assert read(project, follow=True) == [result(0, kind=EARLY), result(1)]
    assert read(project, follow=True, limit=1) == [result(0, kind=EARLY)]
    topic.coming = [result(2)]
    assert read(project, follow=True, start="latest") == [result(2)]


def test_an_unknown_id_is_refused_with_one_that_is_like_it(project):
    with pytest.raises(QueryMissingError, match="did you mean 'a'"):
        read(project, "aa")
    with pytest.raises(QueryMissingError):
        read(project, "aa", follow=True)


def test_results_of_a_cancelled_query_are_shown(project, topic):
    cancel_query(project, "a")
    topic.known = [result(0)]
    assert read(project) == [result(0)]
    assert find_results(project, "a").ended == "Query 'a' was cancelled: it has no further results."
    topic.known, topic.coming = [result(0)], [result(1)]
    assert read(project, follow=True, start="latest") == [result(1)]


def test_a_live_query_may_have_further_results(project, topic):
    assert find_results(project, "a").ended == ""
    topic.live = None
    assert find_results(project, "a").ended == ""


def test_without_a_topic_there_are_no_results_and_nothing_to_follow(project, topic):
    topic.live = None
    assert read(project) == []
    with pytest.raises(TopicMissingError):
        read(project, follow=True)
    with pytest.raises(QueryMissingError):
        read(project, "unknown")


def test_standing_queries_are_to_be_declared(project):
    with pytest.raises(NotDeclaredError):
        find_results(project, "a", queries="other")
