"""What workers promise, while their instances are killed, frozen, restarted, and records are bad.

Drills C-1 to C-13. They share a broker and go on at the same time, each with a topic of its own.
What was seen is judged by :mod:`tests.drills.checker`.
"""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

import pytest
from tests.drills.checker import History, Position, Processed, repeats, repeats_of_committed, report
from tests.drills.ledger import Ledger, topic_ends
from tests.drills.processes import POISON, Drill, Instance
from tests.kafka_topics import grow_topic
from tests.waiting import wait_for

from headrace.kafka.admin.topics import delete_topic
from headrace.kafka.client.admin_requests import describe
from headrace.model import TopicPartition
from headrace.workers.consumer_group.pause_requests import pause, resume

AT_ONCE = 3  # of two cores, which other tests use too
PARTITIONS = 4
QUEUE_BYTES = 512 * 1024
FEW_MB = 64
LONG_ROUNDS = 4
REMADE = "the topic was deleted and recreated"
BROKER = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    # A heartbeat without an answer for twice as long is lost for ever, and so is the assignment
    # that librdkafka would have got with it.
    "group.consumer.heartbeat.interval.ms": "2000",
}


def killed(drill: Drill) -> History:
    """C-1."""
    drill.begin({}, {}, {})
    for _ in range(drill.rounds):
        one = drill.one_with_partitions()
        with drill.fault("kill", taken_over(drill, one)):
            drill.kill_at_work(one)
            drill.start()
    return drill.finish()


def restarted(drill: Drill) -> History:
    """C-2: two of three at once, so that they also leave while the group rebalances."""
    drill.begin({}, {}, {})
    for _ in range(drill.rounds):
        old = drill.running[:2]
        gone = [taken_over(drill, one) for one in old]
        with drill.fault("restart", lambda: all(each() for each in gone)):  # noqa: B023
            for one in old:
                one.signal(signal.SIGTERM)
            begun = [drill.start(), drill.start()]
            ended = [one.end() for one in old]
            assert ended == [0, 0], [one.errors.read_text() for one in old]
            drill.until(lambda: all(one.notes("holds") for one in begun))  # noqa: B023
    return drill.finish(processed_once=True)


class Replaced(NamedTuple):
    """``went_on``: while nobody had the partitions of the one that was killed."""

    history: History
    went_on: bool


def replaced(drill: Drill) -> Replaced:
    """C-11: one is killed and another comes, which waits for the session of the dead to end."""
    drill.begin({}, {})
    dead, healthy = drill.running
    partitions = dead.owned
    with drill.fault("kill", taken_over(drill, dead)):
        dead.kill()
        drill.start()
        time.sleep(10 * drill.spec.commit_seconds)  # the group rebalances, and commits are due
        before = len(healthy.processed)
        drill.until(lambda: len(healthy.processed) > before + 200)
        went_on = not partitions & set().union(*(one.owned for one in drill.running))
    return Replaced(drill.finish(), went_on)


class Bounced(NamedTuple):
    """``moves``: lanes that instances which stayed got or lost."""

    history: History
    moves: int


def bounced(drill: Drill, ways: Sequence[signal.Signals]) -> Bounced:
    """C-3."""
    drill.begin({"instance_id": "a"}, {"instance_id": "b"}, {"instance_id": "c"})
    one = drill.instances[1]
    others = [other for other in drill.instances if other is not one]
    owned, moves = one.owned, lanes_moved(others)
    for way in [*ways] * drill.rounds:
        with drill.fault("bounce", lambda: one.owned == owned):  # noqa: B023
            one.signal(way)
            one.process.wait()
            one = drill.start(instance_id="b")
    moves = lanes_moved(others) - moves
    return Bounced(drill.finish(), moves)


def frozen(drill: Drill) -> History:
    """C-4."""
    drill.begin({}, {})
    for one in drill.running * drill.rounds:
        closed, gone = len(one.notes("close")), taken_over(drill, one)
        with drill.fault("freeze", lambda: one.owned and len(one.notes("close")) > closed):  # noqa: B023
            one.freeze()
            drill.until(gone)
            drill.settle()
            one.thaw()
    return drill.finish()


class Slowed(NamedTuple):
    """What else is to be said of slow records.

    Attributes:
        overtaken: by partition, how often a record after a slow one was done before it.
        most_held: bytes in the instance.
        grown_mb: by so much its memory grew.
    """

    history: History
    overtaken: Counter[int]
    most_held: int
    grown_mb: float


def slowed(drill: Drill) -> Slowed:
    """C-5: most records come at once, so that there is more than may wait in the instance."""
    drill.open({})
    [one] = drill.running
    before = one.rss_mb
    with drill.fault("slow", lambda: not in_process(one)):
        drill.ledger.start()
        drill.until(lambda: max(held(one), default=0) > QUEUE_BYTES / 4 and is_passed(one))
        one.signal(signal.SIGUSR1)
    grown_mb = one.rss_mb - before
    history = drill.finish()
    return Slowed(history, overtaken(one), max(held(one)), grown_mb)


class Kept(NamedTuple):
    """``counts``: what the output has for each key, in order; ``kept``: the state of each key."""

    history: History
    counts: dict[bytes, list[int]]
    kept: dict[bytes, int]


def counted(drill: Drill, drilled: Callable[[Drill], History]) -> Kept:
    """C-13: what another drill does, to workers that count the records of each key."""
    return Kept(drilled(drill), drill.counts(), drill.kept())


def begun(instance: Instance) -> dict[Position, int]:
    """Records that misbehave, and when they began to."""
    return {(int(p), int(offset)): at for _, (p, offset, _), at in instance.notes("begin")}


def in_process(instance: Instance) -> set[Position]:
    return set(begun(instance)) - {one.position for one in instance.processed}


def held(instance: Instance) -> list[int]:
    """Bytes that it held, from time to time."""
    return [int(bytes_) for _, (bytes_,), _ in instance.notes("holds")]


def is_passed(instance: Instance) -> bool:
    """Whether a record is in process in each partition, and one behind it is done."""
    furthest: dict[int, int] = {}
    for one in instance.processed:
        furthest[one.partition] = max(one.offset, furthest.get(one.partition, -1))
    passed = {number for number, at in in_process(instance) if at < furthest.get(number, -1)}
    return len(passed) == PARTITIONS


def overtaken(instance: Instance) -> Counter[int]:
    done = {one.position: one.at for one in instance.processed}
    return Counter(
        partition
        for (partition, offset), began in begun(instance).items()
        for (number, other), at in done.items()
        if number == partition and other > offset and began < at < done[partition, offset]
    )


def poisoned(drill: Drill) -> History:
    """C-6: and one of two killed meanwhile, whose last letters are of records not committed."""
    drill.begin({}, {})
    drill.until(lambda: all(len(one.notes("begin")) > 10 for one in drill.running))
    one = drill.one_with_partitions()
    with drill.fault("kill", taken_over(drill, one)):
        one.kill()
    return drill.finish()


def retried(drill: Drill) -> History:
    """As C-6, but what failed waits in a retry topic, and may do so twice."""
    drill.begin({})
    [one] = drill.running
    drill.until(lambda: len(one.notes("begin")) > 10)
    with drill.fault("kill", taken_over(drill, one)):
        drill.kill_at_work(one)
        drill.start()
    drill.ledger.end()
    drill.until(lambda: has_every_letter(drill.history()))
    return drill.finish()


def has_every_letter(history: History) -> bool:
    return len({(one.partition, one.offset) for one in history.letters}) == len(history.poison)


def paused(drill: Drill) -> History:
    """C-7: what is paused is not processed, whoever has it."""
    rng = random.Random(drill.topic)
    drill.begin({}, {}, {})
    for _ in range(drill.rounds):
        numbers = rng.sample(range(PARTITIONS), 2)
        partitions = [TopicPartition(drill.topic, number) for number in numbers]
        pause(drill.client, drill.spec.worker, partitions)
        drill.until(lambda: are_still(drill, numbers))  # noqa: B023
        since = time.monotonic_ns()
        one = next(one for one in drill.running if one.owned & set(numbers))
        with drill.fault("restart while paused", taken_over(drill, one), but=numbers):
            assert one.end() == 0
            drill.start()
        assert not done_since(drill, since, numbers)
        resume(drill.client, drill.spec.worker, partitions)
        drill.settle()
    return drill.finish(processed_once=True)


class WrittenOnce(NamedTuple):
    """``written``: how often readers of committed records see each id in the output."""

    history: History
    written: Counter[str]


def written_once(drill: Drill, drilled: Callable[[Drill], History]) -> WrittenOnce:
    """C-12: what another drill does, to workers that write in transactions."""
    return WrittenOnce(drilled(drill), drill.written())


def done_since(drill: Drill, since: int, partitions: list[int]) -> list[Processed]:
    done = [each for one in drill.instances for each in one.processed]
    return [one for one in done if one.partition in partitions and one.at > since]


def are_still(drill: Drill, partitions: list[int]) -> bool:
    """For a second, nothing of them was processed, though there is more."""
    ends = topic_ends(drill.client, drill.topic)
    behind = all(ends[number] > drill.commits.latest.get(number, 0) for number in partitions)
    return behind and not done_since(drill, time.monotonic_ns() - 10**9, partitions)


def repartitioned(drill: Drill) -> History:
    """C-8."""
    drill.begin({}, {})
    every = set(range(2 * PARTITIONS))
    with drill.fault("partitions", lambda: set().union(*(o.owned for o in drill.running)) == every):
        grow_topic(drill.client, drill.topic, len(every))
    return drill.finish()


class Recreated(NamedTuple):
    """How an instance ended that ran meanwhile, and one that was started after that.

    The second may go on if nothing of the old topic is committed any more: ``all_read``.
    """

    running: str
    started: str
    all_read: bool


def recreated(drill: Drill) -> Recreated:
    """C-9: frozen until the new topic is longer than the old one was."""
    drill.begin({})
    drill.ledger.end()
    drill.until(lambda: drill.is_committed(topic_ends(drill.client, drill.topic)))
    drill.commits.end()
    [one] = drill.running
    one.freeze()
    delete_topic(drill.client, drill.topic)
    wait_for(lambda: drill.topic not in describe(drill.client, [drill.topic]))
    drill.create(drill.topic, PARTITIONS)
    again = Ledger(drill.client, drill.topic, burst=10 * len(drill.ledger.claims), rate=0)
    again.start()
    wait_for(lambda: again.acked > 9 * len(drill.ledger.claims))
    again.end()
    one.thaw()
    wait_for(lambda: has_ended(one))
    following = drill.start()
    wait_for(lambda: has_ended(following) or len(following.processed) >= again.acked)
    all_read = len(following.processed) >= again.acked
    return Recreated(one.errors.read_text(), following.errors.read_text(), all_read)


def has_ended(instance: Instance) -> bool:
    return instance.process.poll() is not None


def taken_over(drill: Drill, gone: Instance) -> Callable[[], bool]:
    """Others have what it has now."""
    partitions = gone.owned
    return lambda: (
        partitions <= set().union(*(one.owned for one in drill.running if one is not gone))
    )


def lanes_moved(instances: list[Instance]) -> int:
    return sum(len(one.notes("open", "close")) for one in instances)


def every(number: int, deeds: Sequence[str], *, of: int) -> str:
    """One record in so many does one of these, in turn."""
    return "" if number % of != of // 2 else f".{deeds[number // of % len(deeds)]}"


TASK_DEEDS = ("fail", "bad", "hang")
OBSERVED_DEEDS = ("fail", "bad", "hang", "silent", "told")
CLEAN, CRASH = signal.SIGTERM, signal.SIGKILL
SHORT = {"session_seconds": 4.0}
LONG = {"session_seconds": 30.0}  # nobody is to be taken for dead, however busy the machine is
CONSUMER = {"protocol": "consumer", "session_seconds": 8.0}  # of four heartbeats
ONCE = {"exactly_once": True, "session_seconds": 4.0}
STATE = {"has_state": True, **ONCE}
BAD = {"lanes": 16, "timeout_seconds": 0.5, "session_seconds": 3.0, "commit_seconds": 2.0}
SLOW_ONES = partial(every, deeds=["slow"], of=1000)
DRILLS = {  # the longest first
    "slowed": (
        slowed,
        {
            "sent": {"rate": 5, "burst": 10_000, "deeds": SLOW_ONES},
            "lanes": 16,
            "work_seconds": 0.0,
            "queue_bytes": QUEUE_BYTES,
            "timeout_seconds": 600.0,
        },
    ),
    "killed": (killed, {"long_rounds": 12, **SHORT}),
    "killed, consumer": (killed, {"long_rounds": 8, **CONSUMER}),
    "frozen, consumer": (frozen, CONSUMER),
    "restarted": (restarted, {"long_rounds": 12, **LONG}),
    "paused": (paused, {"long_rounds": 8, **LONG}),
    "poisoned": (poisoned, {"sent": {"deeds": partial(every, deeds=TASK_DEEDS, of=75)}, **BAD}),
    "poisoned and observed": (
        poisoned,
        {"sent": {"deeds": partial(every, deeds=OBSERVED_DEEDS, of=75)}, "observed": True, **BAD},
    ),
    "retried": (
        retried,
        {"sent": {"deeds": partial(every, deeds=TASK_DEEDS, of=75)}, "retry_topics": True, **BAD},
    ),
    "frozen": (frozen, SHORT),
    "replaced": (replaced, {"session_seconds": 15.0}),
    "restarted, consumer": (restarted, {"long_rounds": 8, **CONSUMER, **LONG}),
    "repartitioned": (repartitioned, {"most_partitions": 2 * PARTITIONS}),
    "bounced": (partial(bounced, ways=(CLEAN, CRASH)), LONG),
    "bounced, consumer": (partial(bounced, ways=[CLEAN]), {**CONSUMER, **LONG}),
    "killed, exactly once": (partial(written_once, drilled=killed), {"long_rounds": 12, **ONCE}),
    "killed, exactly once, consumer": (
        partial(written_once, drilled=killed),
        {"long_rounds": 8, **ONCE, **CONSUMER},
    ),
    "frozen, exactly once": (partial(written_once, drilled=frozen), ONCE),
    "restarted, exactly once": (
        partial(written_once, drilled=restarted),
        {"long_rounds": 12, **ONCE, **LONG},
    ),
    "poisoned, exactly once": (
        partial(written_once, drilled=poisoned),
        {"sent": {"deeds": partial(every, deeds=TASK_DEEDS, of=75)}, **BAD, "exactly_once": True},
    ),
    "retried, exactly once": (
        partial(written_once, drilled=retried),
        {
            "sent": {"deeds": partial(every, deeds=TASK_DEEDS, of=75)},
            "retry_topics": True,
            **BAD,
            "exactly_once": True,
        },
    ),
    "killed, with state": (partial(counted, drilled=killed), {"long_rounds": 12, **STATE}),
    "frozen, with state": (partial(counted, drilled=frozen), STATE),
    "restarted, with state": (
        partial(counted, drilled=restarted),
        {"long_rounds": 12, **STATE, **LONG},
    ),
    "poisoned, with state": (
        partial(counted, drilled=poisoned),
        {"sent": {"deeds": partial(every, deeds=TASK_DEEDS, of=75)}, **BAD, **STATE},
    ),
    "recreated": (recreated, {"session_seconds": 60.0}),
    "recreated, consumer": (recreated, {**CONSUMER, **LONG}),
}


@pytest.fixture(scope="module")
def ended(request, start_cluster, tmp_path_factory) -> Iterator[Callable[[str], object]]:
    """``ended("killed")``: what that drill gave. Only the drills of selected tests take place."""
    cluster = start_cluster(config=BROKER)
    tests = [one for one in request.session.items if one.path == request.path]
    wanted = {one.callspec.params["drill"] for one in tests}
    folder = tmp_path_factory.mktemp("drills")
    is_long = request.config.option.drills == "long"

    def run(name: str) -> object:
        drilled, options = DRILLS[name]
        declared = {"partitions": PARTITIONS, **options}
        rounds = declared.pop("long_rounds", LONG_ROUNDS)
        declared["rounds"] = rounds if is_long else 1
        with Drill(cluster.bootstrap_servers, folder, **declared) as drill:
            return drilled(drill)

    with ThreadPoolExecutor(AT_ONCE) as executor:
        runs = {name: executor.submit(run, name) for name in DRILLS if name in wanted}
        yield lambda name: runs[name].result()
    cluster.cluster.stop()


def drills(*names: str, always: str = "") -> pytest.MarkDecorator:
    """A test of each of these; ``always``: one that every run of the tests has."""
    tests = [pytest.param(name, marks=pytest.mark.drill) for name in names if name != always]
    if always:
        tests.insert(0, pytest.param(always, marks=pytest.mark.drill(always=True)))
    return pytest.mark.parametrize("drill", tests)


@drills("killed, consumer", always="killed")
def test_instances_are_killed_and_only_what_was_not_committed_is_repeated(ended, drill):
    history = ended(drill)
    assert report(history) == ""
    assert repeats(history)
    assert repeats_of_committed(history) == []


@drills(
    "killed, exactly once, consumer",
    "frozen, exactly once",
    "restarted, exactly once",
    "poisoned, exactly once",
    "retried, exactly once",
    always="killed, exactly once",
)
def test_readers_of_committed_records_see_what_was_sent_for_each_record_once(ended, drill):
    history, written = ended(drill)
    assert report(history) == ""
    expected = {stored.id for stored in history.stored} - history.poison.keys()
    assert written == dict.fromkeys(expected, 1)


@drills("killed, with state", "frozen, with state", "restarted, with state", "poisoned, with state")
def test_the_state_of_each_key_has_each_record_once(ended, drill):
    history, counts, kept = ended(drill)
    assert report(history) == ""
    expected = Counter(stored.key for stored in history.stored if stored.id not in history.poison)
    assert counts == {key: list(range(1, count + 1)) for key, count in expected.items()}
    assert kept == expected


@drills("replaced")
def test_an_instance_that_is_killed_and_replaced_holds_up_no_other(ended, drill):
    found = ended(drill)
    assert report(found.history) == ""
    assert found.went_on


@drills("restarted", "restarted, consumer")
def test_instances_are_restarted_two_at_a_time_and_nothing_is_repeated(ended, drill):
    assert report(ended(drill)) == ""


@drills("bounced", "bounced, consumer")
def test_a_static_member_comes_back_and_the_others_do_not_notice(ended, drill):
    found = ended(drill)
    assert report(found.history) == ""
    assert found.moves == 0


@drills("frozen", "frozen, consumer")
def test_a_frozen_instance_wakes_up_and_moves_no_committed_offset(ended, drill):
    assert report(ended(drill)) == ""


@drills("slowed")
def test_a_slow_record_holds_up_the_commit_and_nothing_else(ended, drill):
    found = ended(drill)
    assert report(found.history) == ""
    assert set(found.overtaken) == set(range(PARTITIONS))
    assert QUEUE_BYTES / 4 < found.most_held < 1.1 * QUEUE_BYTES
    assert found.grown_mb < FEW_MB


@pytest.mark.drill
@pytest.mark.parametrize(
    ("drill", "deeds"),
    [
        ("poisoned", TASK_DEEDS),
        ("retried", TASK_DEEDS),
        ("poisoned and observed", OBSERVED_DEEDS),
    ],
)
def test_what_fails_or_is_never_answered_is_a_dead_letter_once(ended, drill, deeds):
    history = ended(drill)
    assert report(history) == ""
    assert {name.partition(".")[2] for name in history.poison} == set(deeds) & set(POISON)


@drills("paused")
def test_paused_partitions_stay_paused_when_they_move(ended, drill):
    assert report(ended(drill)) == ""


@drills("repartitioned")
def test_partitions_that_are_added_are_read_from_their_beginning(ended, drill):
    assert report(ended(drill)) == ""


@drills("recreated", "recreated, consumer")
def test_a_topic_that_is_made_again_stops_the_worker(ended, drill):
    found = ended(drill)
    assert "CommittedOffsetError" in found.running
    assert REMADE in found.running
    assert REMADE in found.started or found.all_read
