"""`query emit` as users run it: events that match, sent by Spark's real-time mode."""

from __future__ import annotations

import itertools
import json
import random
import signal
import time
from collections import Counter
from dataclasses import replace

import pytest
from tests.integration.emit_project import ALL, CHEAP, PARTITIONS, EmitProject
from tests.kafka_topics import grow_topic, make_topic
from tests.waiting import wait_for

from headrace import Origin, Project
from headrace.errors import QueryMissingError
from headrace.kafka.admin.topics import delete_topic
from headrace.queries.books import matched_events_books
from headrace.queries.emit.positions import commit_positions, committed_positions


@pytest.fixture
def project(tmp_path, session, broker, topic):
    return EmitProject(tmp_path, broker, topic)


def test_events_that_match_are_sent_once_in_order_with_their_place(project):
    project.register("cheap", CHEAP)
    project.register("silent", CHEAP, emits=False)
    with project.running():
        project.until_begun()
        cheap = project.send(20)
        project.send(5, price=9)
        project.send(5, item="b")
        project.until("cheap", cheap)
    assert {record.key() for record in project.records()} == {b"cheap"}
    for partition in range(PARTITIONS):
        offsets = [offset for number, offset in project.places("cheap") if number == partition]
        assert offsets == sorted(offsets)
    record, *_ = project.records()
    headers = dict(record.headers())
    assert headers["headrace-query-revision"] == b"1"
    assert headers["headrace-registry-offset"] == b"2"
    assert json.loads(record.value())["item"] == "a"


def test_a_program_reads_the_events_of_one_query_or_of_all(project):
    project.register("cheap", CHEAP)
    project.register("all", ALL)
    program = Project(project.loaded)
    with project.running():
        project.until_begun()
        places = project.send(4)
        project.until("cheap", places)
        coming = program.matched_events("cheap", start="latest", follow=True)
        places += project.send(2, price=9)
        cheap = project.send(4)
        matched = list(itertools.islice(coming, 4))
        coming.close()
        project.until("all", [*places, *cheap])
    assert {event.origin for event in matched} == {
        Origin("here", project.topic, partition, offset) for partition, offset in cheap
    }
    assert {(event.query, event.revision, event.event["price"]) for event in matched} == {
        ("cheap", 1, 1)
    }
    counts = Counter(event.query for event in program.matched_events())
    assert counts == {"cheap": 8, "all": 10}
    assert len(list(program.matched_events("cheap"))) == 8
    assert matched[-1] in list(program.matched_events(start=matched[-1].sent_at))
    with pytest.raises(QueryMissingError):
        program.matched_events("chaep")


def test_a_second_process_is_refused_and_leaves_the_status_of_the_first_alone(project):
    project.register("cheap", CHEAP)
    with project.running_process(signal.SIGTERM, exit_code=0):
        # Without a sign for 30 s, as Spark starts, it failed.
        wait_for(lambda: states(project) == ["running"], lambda: states(project))
        refused = project.run("query", "emit", exit_code=3)
        assert states(project) == ["running"]
    assert refused["error"] == "MATCHED_EVENTS_RUNNING"


def states(project):
    return [instance["state"] for instance in project.run("status")["matched_events"]]


def test_queries_come_and_go_and_each_event_is_sent_once(project):
    project.register("first", CHEAP)
    with project.running():
        project.until_begun()
        early = project.send(10)
        project.until("first", early)
        project.register("second", ALL)
        every = [*early, *project.send_until(lambda: project.places("second"))]
        every += project.send(10)
        project.until("first", every)
        project.cancel("first")
        every += project.send_until(
            lambda: len(project.places("first")) < len(project.places("second"))
        )
        last = project.send(1)
        every += last
        wait_for(lambda: set(last) <= set(project.places("second")))
        second = project.places("second")
    # From one offset of each partition on, without a gap.
    for partition in range(PARTITIONS):
        have = [offset for number, offset in second if number == partition]
        assert have == list(range(have[0], have[-1] + 1))
    first = project.places("first")
    assert len(first) == len(set(first))
    assert set(first) < set(every)


def test_nothing_is_left_out_of_topics_that_grow_and_are_made_again(
    tmp_path, session, broker, topic
):
    """An event as large as the topic allows has headers, too, when it is sent on."""
    project = EmitProject(tmp_path, broker, topic, partitions=1)
    project.register("all", ALL)
    with project.running():
        project.until_begun()
        places = project.send(1, item=random.Random(1).randbytes(520_000).hex())
        project.until("all", places)
    grow_topic(project.config, project.topic, 2)
    project.send_to(1, 3)
    places += [(1, offset) for offset in range(3)]
    with project.running():
        project.until("all", places)
    delete_topic(project.config, project.topic)
    make_topic(project.config, project.topic, 2)
    for partition in range(2):
        project.send_to(partition, 3)
        places += [(partition, offset) for offset in range(3)]
    with project.running():
        project.until("all", places)


def test_queries_that_change_often_leave_no_events_behind(project):
    """The position moves on, and a new query has no events of long ago."""
    project.register("rare", "SELECT count(*) FROM {topic} WHERE item = 'none'")
    with project.running():
        project.until_begun()
        project.send(40)
        numbers = itertools.count(1)

        def has_moved_on():
            if sum(project.committed().values()) >= project.sent // 2:
                return True
            name = f"rare-{next(numbers)}"
            project.register(name, "SELECT count(*) FROM {topic} WHERE item = 'none'")
            project.send(2)
            time.sleep(4)  # so often a query changes
            return False

        wait_for(has_moved_on, project.committed)
        before = project.sent
        project.register("late", ALL)
        project.send_until(lambda: project.places("late"))
        places = project.places("late")
    assert places
    assert all(offset * PARTITIONS + number >= before for number, offset in places)


def test_a_process_that_is_killed_repeats_and_loses_nothing(project):
    project.register("cheap", CHEAP)
    with project.running_process(signal.SIGKILL, exit_code=-signal.SIGKILL):
        project.until_begun()
        places = project.send(51)
        project.until("cheap", places)
    places += project.send(10)
    with project.running():
        places += project.send(10)
        project.until("cheap", places)
        places += project.send(10)
        project.until("cheap", places)
    assert len(project.places("cheap")) == len(places)
    balance = project.balance()
    looked_at = sum(project.committed().values())
    assert (balance.state, balance.events) == ("balanced", looked_at)
    assert balance.matches == balance.in_topic == looked_at > len(places) - 10


def test_a_process_whose_place_was_taken_ends_and_leaves_it_alone(project):
    """It may notice it before it is to end: then it is refused."""
    project.register("cheap", CHEAP)
    with project.running(exit_codes=(0, 3)):
        project.until_begun()
        project.until("cheap", project.send(6))
        positions = committed_positions(project.matched, project.sources)
        taken = {source: replace(at, instance="another-1") for source, at in positions.items()}
        commit_positions(project.matched, taken)
    assert committed_positions(project.matched, project.sources) == taken


def test_what_is_missing_or_too_many_is_told(project):
    """Positions are committed behind an event that was not sent, and another program sends one."""
    assert [*matched_events_books(project.loaded, project.queries)] == []
    project.register("cheap", CHEAP)
    assert "has not looked at" in project.balance().unknown
    with project.running():
        project.until_begun()
        project.until("cheap", project.send(6))
    (status,) = project.run("status")["matched_events"]
    looked_at = sum(project.committed().values())
    assert (status["read"], status["records"]) == (looked_at, 6)
    assert status["lag_records"] == project.balance().lag
    assert (project.balance().state, project.balance().matches) == ("balanced", looked_at)
    project.send(2)
    project.commit(0, offset=4)
    assert project.differences() == {(1, 0)}
    project.send_again(1, offset=1)
    assert project.differences() == {(1, 0), (-1, 1)}
    reconciled = project.run("reconcile", project.name, "--recount", exit_code=6)
    (told,) = reconciled["matched_events"]
    assert (told["topic"], told["state"]) == (project.topic, "unbalanced")


def test_events_count_since_the_queries_have_changed_last(project):
    project.register("first", CHEAP)
    with project.running():
        project.until_begun()
        places = project.send(4)
        project.until("first", places)
        project.register("second", ALL)
        places += project.send_until(lambda: project.places("second"), item="b")
        later = project.send(20)
        project.until("first", [*places[:4], *later])
    balance = project.balance()
    seen = len(project.places("second"))
    assert balance.state == "balanced", balance
    assert seen - PARTITIONS <= balance.events <= seen
    assert balance.matches == balance.in_topic >= balance.events + 20 - PARTITIONS
