"""The events that every benchmark reads."""

import json
from collections import Counter
from datetime import UTC, datetime

import pytest
from bench.events import BEGIN, SPAN, Impression, events

from headrace.model import event_schema

COUNT = 5_000


@pytest.fixture(scope="module")
def made():
    return list(events(COUNT))


def test_the_same_bytes_come_in_every_run(made):
    assert list(events(COUNT)) == made


def test_an_event_has_the_declared_fields_and_about_280_bytes(made):
    declared = event_schema(Impression).names
    assert len(declared) == 10
    assert all(tuple(json.loads(event)) == declared for event in made)
    assert 270 < sum(map(len, made)) / COUNT < 300


def test_every_event_has_an_id_of_its_own(made):
    assert len({json.loads(event)["event_id"] for event in made}) == COUNT


def test_event_times_run_over_two_hours_in_rough_order(made):
    times = [datetime.fromtimestamp(json.loads(one)["event_time"] / 1000, UTC) for one in made]
    assert min(times) >= BEGIN
    assert max(times) < BEGIN + SPAN
    assert len({time.hour for time in times}) == 2
    assert times != sorted(times)


def test_there_are_eight_categories_of_unequal_size(made):
    sizes = Counter(json.loads(event)["category"] for event in made).most_common()
    assert len(sizes) == 8
    assert sizes[0][1] > 3 * sizes[-1][1]
