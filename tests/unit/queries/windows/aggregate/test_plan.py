"""Plans of texts: one is parsed of each shape, and the newest are kept."""

from __future__ import annotations

import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from tests.unit.queries.windows.aggregate.memory_partition import SCHEMAS

from headrace.errors import QueryTextError
from headrace.queries.language import parse_query
from headrace.queries.windows.aggregate import plan as plan_module
from headrace.queries.windows.aggregate.plan import Plans


@pytest.fixture
def parsed(monkeypatch):
    """Texts that are parsed meanwhile."""
    texts = []

    def parse(text):
        texts.append(text)
        return parse_query(text)

    monkeypatch.setattr(plan_module, "parse_query", parse)
    return texts


def text_of(country, *, window="10 seconds"):
    return f"SELECT count(*)\nFROM clicks\nWHERE country = '{country}'\nWINDOW {window}"


def test_texts_of_one_shape_have_one_plan_and_one_of_them_is_parsed(parsed):
    plans = Plans(SCHEMAS)
    first = plans.of(text_of("PL"))
    assert all(plans.of(text_of(f"c{number}"), first.shape) is first for number in range(100))
    assert parsed == [text_of("PL")]


def test_a_text_that_is_not_of_the_shape_that_is_named_has_a_plan_of_its_own(parsed):
    plans = Plans(SCHEMAS)
    first = plans.of(text_of("PL"))
    other = plans.of(text_of("PL", window="1 minute"), first.shape)
    assert (first.window_us, other.window_us) == (10_000_000, 60_000_000)
    assert len(parsed) == 2


def test_a_shape_that_is_not_known_is_parsed(parsed):
    plans = Plans(SCHEMAS)
    shape = Plans(SCHEMAS).of(text_of("PL")).shape
    assert plans.of(text_of("DE"), shape) is plans.of(text_of("FR"), shape)
    assert parsed == [text_of("PL"), text_of("DE")]


def test_the_oldest_text_makes_room_for_a_new_one(parsed):
    plans = Plans(SCHEMAS, max_texts=2)
    for country in ("a", "b", "c", "b", "c"):
        plans.of(text_of(country))
    assert parsed == [text_of("a"), text_of("b"), text_of("c")]
    plans.of(text_of("a"))
    assert parsed[3:] == [text_of("a")]


def test_a_text_without_a_plan_is_parsed_once(parsed):
    plans = Plans(SCHEMAS)
    for _ in range(2):
        with pytest.raises(QueryTextError):
            plans.of("SELECT sum(nothing) FROM clicks")
    assert len(parsed) == 1


def test_an_error_that_is_raised_again_keeps_nothing_of_who_asked():
    plans = Plans(SCHEMAS)

    class Asked:
        pass

    def ask():
        asked = Asked()
        with pytest.raises(QueryTextError) as raised:
            plans.of("SELECT sum(nothing) FROM clicks")
        return weakref.ref(asked), str(raised.value)

    (first, reason), (second, again) = ask(), ask()
    gc.collect()
    assert (first(), second()) == (None, None)
    assert reason == again


class MetPlans(dict):
    """Plans whose oldest one is chosen by two threads at the same time, unless one keeps out."""

    def __init__(self, plans):
        super().__init__(plans)
        self._both = threading.Barrier(2)

    def __iter__(self):
        oldest = list(super().__iter__())
        with suppress(threading.BrokenBarrierError):
            self._both.wait(0.2)
        return iter(oldest)


def test_two_threads_may_make_room_at_the_same_time():
    plans = Plans(SCHEMAS, max_texts=2)
    known = [plans.of(text_of(country)) for country in ("a", "b")]
    plans._plans = MetPlans(plans._plans)
    with ThreadPoolExecutor(2) as threads:
        new = list(threads.map(plans.of, [text_of("c"), text_of("d")]))
    assert [each.shape for each in new] == [each.shape for each in known]
    assert set(plans._plans.keys()) == {text_of("c"), text_of("d")}
