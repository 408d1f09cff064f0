"""A partition's join gives the same events whatever is cut, crashes, is lost, moved or restored."""

import random
import shutil
from dataclasses import fields, replace

import pytest
from tests.drills.join_histories import (
    BEGIN,
    MINUTE,
    History,
    SimulatedPartition,
    assert_is_that_of_the_whole,
    disturbed,
)

from headrace.pipelines.join.declaration import Match
from headrace.pipelines.join.events import KeyedEvent, KeyedEvents
from headrace.pipelines.join.index.earlier_index import EarlierIndex, with_index
from headrace.pipelines.join.index.slices import slice_length_us
from headrace.pipelines.join.index.state import StateFolder
from headrace.pipelines.join.matching import JoinWindow
from headrace.pipelines.join.offsets import JoinPosition
from headrace.pipelines.join.partition import JoinPartition


@pytest.fixture(autouse=True)
def few_files_are_compacted(monkeypatch):
    monkeypatch.setattr("headrace.pipelines.join.index.state.COMPACTION_FAN_IN", 3)


@pytest.mark.parametrize("match", Match)
@pytest.mark.parametrize("seed", range(30))
def test_the_output_is_that_of_the_whole_history(tmp_path, seed, match):
    rng = random.Random(seed)
    history, partition = History.random(rng, match), SimulatedPartition(tmp_path, match)
    assert_is_that_of_the_whole(disturbed(partition, history, rng), history)


@pytest.mark.parametrize("match", Match)
@pytest.mark.parametrize("seed", range(6))
def test_a_batch_gives_what_it_gives_without_a_disturbance(tmp_path, seed, match):
    """Also where the clock runs ahead of events that are read later."""
    rng = random.Random(seed)
    (tmp_path / "disturbed").mkdir()
    (tmp_path / "quiet").mkdir()
    history = History.random(rng, match)
    partition = SimulatedPartition(tmp_path / "disturbed", match)
    committed = disturbed(partition, history, rng, ahead_us=20 * MINUTE)
    quiet = SimulatedPartition(tmp_path / "quiet", match)
    for each in committed:
        alone = quiet.join("a", each.start, each.end, history)
        assert what_it_gave(each.batch) == what_it_gave(alone)
        assert alone.counts.rebuilt_files == 0  # the machine has all that it needs
    quiet.lose("a")
    last = committed[-1]
    again = quiet.join("a", last.start, last.end, history)
    assert what_it_gave(again) == what_it_gave(last.batch)
    assert again.counts.rebuilt_files == len(quiet.state(last.start).segments)


@pytest.mark.parametrize("match", Match)
def test_a_machine_that_lags_or_repeats_batches_keeps_its_index(tmp_path, monkeypatch, match):
    """Whatever was compacted or has expired since: to make it again may take minutes."""
    rng = random.Random(5)
    history, partition = History.random(rng, match), SimulatedPartition(tmp_path, match)
    emptied, clear = [], EarlierIndex.clear

    def noting(index, state_id):
        emptied.append(state_id)
        clear(index, state_id)

    position, compacted = JoinPosition(0, 0, 0, 0), 0
    for number, end in enumerate(history.positions(rng, position, 0)):
        machines = ["a", "b", "c"] if number == 1 else rng.choices("abc", [8, 4, 1], k=2)
        if number == 2:
            monkeypatch.setattr(EarlierIndex, "clear", noting)
        for machine in machines:
            partition.join(machine, position, end, history)
        position = end
        segments = partition.state(end).segments.values()
        compacted = max([compacted, *(file.level for file in segments)])
    assert compacted >= 2
    assert emptied == []


@pytest.mark.parametrize("match", Match)
def test_later_events_come_in_their_order_but_for_those_that_waited(tmp_path, match):
    rng = random.Random(1)
    history, partition = History.random(rng, match), SimulatedPartition(tmp_path, match)
    matched = 0
    for each in disturbed(partition, history, rng):
        outcomes = ([later for later, _ in each.batch.matched], each.batch.unmatched)
        for events in outcomes:
            read_now = [event.offset for event in events if event.offset >= each.start.later]
            assert read_now == sorted(read_now)
        matched += len(outcomes[0])
    assert matched > 10


def what_it_gave(batch):
    values = {field.name: getattr(batch, field.name) for field in fields(batch)}
    facts = {
        name: [*value] if isinstance(value, KeyedEvents) else value
        for name, value in values.items()
    }
    of_machine = {"state_bytes": 0, "rebuilt_files": 0, "rebuild_ms": 0}
    return facts | {"waited": [*batch.waited], "counts": replace(batch.counts, **of_machine)}


def test_an_index_that_forgot_events_serves_no_older_checkpoint(tmp_path, monkeypatch):
    """It took others with their ids before it could note what it forgot."""
    window = JoinWindow(within_us=60 * MINUTE, wait_us=5 * MINUTE)
    slice_us = slice_length_us(window.within_us)
    begin = BEGIN // (64 * slice_us) * 64 * slice_us

    def earlier(offset, slice_, key):
        return KeyedEvent(key, begin + slice_ * slice_us + 1, offset, b"%d" % offset)

    # A backlog: batches span more than sixteen slices. The id is there again three slices later.
    backlog = [earlier(n, n, b"%d" % n if n else b"id") for n in range(62)]
    events = [*backlog, earlier(62, 3, b"id"), *(earlier(51 + n, n, b"x") for n in range(12, 62))]
    click = KeyedEvent(b"id", begin + slice_us + 1, 0, b"click")

    def joined(machine, durable, start, end):
        folder = StateFolder(str(tmp_path / durable), JoinPosition(0, 0, 0, 0), "p", {})
        read = KeyedEvents.of(events[start.earlier : end.earlier])
        clicks = [click][start.later : end.later]
        return with_index(
            tmp_path / machine,
            slice_us,
            lambda index: JoinPartition(folder, index, window, Match.ID).join(
                start, end, read, clicks
            ),
        )

    def position(earlier, later, slice_):
        clock_us = begin + slice_ * slice_us + 1
        return JoinPosition(earlier, later, clock_us, window.horizon_us(clock_us))

    first, second = position(62, 0, 3), position(62, 0, 12)
    (tmp_path / "durable").mkdir()
    joined("machine", "durable", JoinPosition(0, 0, 0, 0), first)
    shutil.copytree(tmp_path / "durable", tmp_path / "backup")
    joined("machine", "durable", first, second)
    with monkeypatch.context() as patch:
        patch.setattr(StateFolder, "write", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            joined("machine", "durable", second, position(len(events), 0, 12))
    assert joined("machine", "backup", first, position(62, 1, 4)).matched == [(click, events[0])]
