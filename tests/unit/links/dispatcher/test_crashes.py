"""A dispatcher is killed at each call of its clients and its query; the next repeats nothing."""

import itertools
from types import SimpleNamespace

import pytest

from headrace.kafka.read.log_cuts import Seen
from headrace.links.dispatcher.routes import route_run, sent
from headrace.links.dispatcher.routes.route import DispatcherRoute
from headrace.links.dispatcher.routes.route_run import RouteRun
from headrace.links.starts import Starts
from headrace.model import TopicPartition
from headrace.settings.model import RestartSettings
from headrace.spark import claimed_query
from headrace.spark.claimed_query import CommittedPosition
from headrace.spark.topic_query import DoneBatches

RECORDS = 7
ROUTE = DispatcherRoute(
    "d", "headrace.dispatcher.d.waw", "central", "waw", {}, {}, "clicks", "events"
)
SOURCE = TopicPartition("clicks", 0)


class Killed(BaseException):
    """The process was killed here."""


class Sites:
    """A source with some records, what the target has of them, and the committed position.

    Attributes:
        copies: offsets of the source, in the order of the target.
        steps: calls until an instance is killed.
    """

    def __init__(self, steps):
        self.copies, self.committed, self.steps = [], CommittedPosition(0, "id"), steps

    def step(self):
        self.steps -= 1
        if self.steps < 0:
            raise Killed

    def commit(self, _, positions):
        self.step()
        self.committed = positions[SOURCE]
        self.step()

    def source_ends(self, _, partitions):
        self.step()
        return dict.fromkeys(partitions, (RECORDS, 0))

    def target_ends(self, _, partitions):
        self.step()
        return dict.fromkeys(partitions, len(self.copies))

    def since(self, _, floors):
        self.step()
        [(copy, floor)] = floors.items()
        return {copy: self.copies[floor:]}


class Query:
    """Sends two records in a batch; a batch has ended when the next one is sent."""

    failure = None

    def __init__(self, sites, first, known):
        self._sites, self._next, self._known = sites, first, known
        self._ended = self._reported = first

    @property
    def is_active(self):
        self._ended = self._next
        for offset in range(self._next, min(self._next + 2, RECORDS)):
            self._sites.step()
            if offset not in self._known:
                self._sites.copies.append(offset)
            self._next = offset + 1
        return self._ended < RECORDS

    def progress(self):
        self._sites.step()
        if self._reported == self._ended:
            return None
        return DoneBatches(self._ended, 0, 0, {SOURCE: self._ended})

    def acknowledge(self, done):
        self._reported = done.batch

    def stop(self):
        pass


@pytest.fixture
def run(monkeypatch, tmp_path):
    """``run(sites)``: an instance, until all is sent or it is killed; whether it was."""

    def once(sites):
        def query(_spark, _route, records, *_, **__):
            first, marks = records[SOURCE].first, records[SOURCE].marks
            known = {first + number for number, mark in enumerate(marks) if mark}
            return Query(sites, first, known)

        fakes = {
            "find_starts": lambda _: Starts({SOURCE: sites.committed}, {}, frozenset()),
            "live_topic": lambda *_: SimpleNamespace(topic_id="id", partitions=1),
            "commit_positions": sites.commit,
            "committed_positions": lambda *_: {SOURCE: sites.committed},
            "route_query": query,
        }
        for name, fake in fakes.items():
            monkeypatch.setattr(route_run, name, fake)
        monkeypatch.setattr(route_run, "check_clusters", lambda *_: None)
        monkeypatch.setattr(claimed_query, "latest_offsets", sites.source_ends)
        monkeypatch.setattr(claimed_query, "high_watermarks", sites.target_ends)
        monkeypatch.setattr(
            claimed_query, "whole_ends", lambda _, seen: dict.fromkeys(seen, Seen(0))
        )
        monkeypatch.setattr(sent, "copied_since", sites.since)
        instance = RouteRun(None, ROUTE, RestartSettings(), tmp_path / "d", lambda: 1, once=True)
        instance.poll_seconds = 0
        try:
            instance.run()
        except Killed:
            return True
        assert instance.failure is None
        return False

    return once


def test_killed_at_any_call_it_sends_each_record_once_and_in_order(run):
    for steps in range(1_000):
        sites = Sites(steps)
        was_killed = run(sites)
        sites.steps = 1_000
        assert not run(sites)
        assert sites.copies == list(range(RECORDS))
        assert sites.committed.offset == RECORDS
        if not was_killed:
            return
    raise AssertionError("it was killed each time")


def test_killed_before_it_has_passed_what_was_sent_it_repeats_nothing(run):
    for first, second in itertools.product(range(9, 15), range(9, 21)):
        sites = Sites(first)
        run(sites)
        sites.steps = second
        run(sites)
        sites.steps = 1_000
        assert not run(sites)
        assert sites.copies == list(range(RECORDS)), (first, second)


@pytest.mark.parametrize("steps", range(6, 16))
def test_killed_again_and_again_it_loses_and_repeats_nothing(run, steps):
    sites = Sites(steps)
    for _ in range(50):
        if not run(sites):
            break
        sites.steps = steps
    sites.steps = 1_000
    assert not run(sites)
    assert sites.copies == list(range(RECORDS))
