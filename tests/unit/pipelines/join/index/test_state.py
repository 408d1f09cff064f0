"""The durable state of a partition of a join."""

import re
import zlib
from pathlib import Path

import msgspec
import pytest
from tests.drills.join_histories import WINDOW

from headrace.errors import JoinStateError
from headrace.pipelines.join.declaration import Match
from headrace.pipelines.join.events import KeyedEvent, KeyedEvents
from headrace.pipelines.join.index.earlier_index import EarlierIndex
from headrace.pipelines.join.index.slices import slice_length_us
from headrace.pipelines.join.index.sorted_files import sorted_files
from headrace.pipelines.join.index.state import JoinState, StateFolder
from headrace.pipelines.join.offsets import JoinPosition
from headrace.pipelines.join.partition import JoinPartition

BEGIN = 1_764_000_000_000_000
INITIAL = JoinPosition(0, 0, 0, 0)
FIRST = JoinPosition(1, 0, BEGIN, 0)
WAITED = JoinPosition(1, 1, BEGIN + 2 * WINDOW.wait_us, 0)
NONE = KeyedEvents.of([])
SLICE = slice_length_us(WINDOW.within_us)


def folder(path):
    return StateFolder(str(path), INITIAL, "p", {})


@pytest.mark.parametrize(
    "other", [{"facts": {}, "waiting": []}, {"id": "x", "segments": {}, "waiting": []}]
)
def test_a_state_of_another_form_is_refused(tmp_path, other):
    """Taken for an empty one, every event would come out unmatched."""
    content = msgspec.msgpack.encode(other)
    (tmp_path / FIRST.file).write_bytes(content + zlib.crc32(content).to_bytes(4, "little"))
    with pytest.raises(JoinStateError):
        folder(tmp_path).read(FIRST)


@pytest.fixture
def state_folder(tmp_path):
    """Holds one earlier event, at FIRST."""
    joined(folder(tmp_path / "state"), tmp_path / "a", Match.ID, (INITIAL, FIRST), earlier(), [])
    return tmp_path / "state"


def earlier(value=b"value"):
    return KeyedEvents.of([KeyedEvent(b"k", BEGIN, 0, value)])


def cut(file):
    file.write_bytes(file.read_bytes()[:-1])


def flip(file):
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize(
    ("kind", "machine", "lose"),
    [
        *((kind, "b", lose) for kind in ("state", "segment") for lose in (Path.unlink, cut, flip)),
        ("segment", "a", Path.unlink),  # the index of this machine has its events; no other one has
    ],
)
def test_what_is_lost_or_damaged_is_refused(tmp_path, state_folder, kind, machine, lose):
    [file] = state_folder.glob(f"{kind}-*")
    lose(file)
    with pytest.raises(JoinStateError, match=re.escape(file.name)):
        joined(folder(state_folder), tmp_path / machine, Match.ID, (FIRST, WAITED), NONE, [])


def test_files_of_others_are_left_alone_and_what_a_crash_left_is_deleted(tmp_path, state_folder):
    [segment] = state_folder.glob("segment-*")
    others = ["lost+found", "segment-old.msgpack", ".nfs0000", f"{segment.name}.bak"]
    ended = f".{segment.name}.{'0' * 32}.tmp"
    later = JoinPosition(9, 9, BEGIN, 0)
    being_written = f".{later.file}.{'0' * 32}.tmp"
    for name in (*others, ended, being_written):
        (state_folder / name).write_bytes(b"")
    joined(folder(state_folder), tmp_path / "a", Match.ID, (FIRST, WAITED), NONE, [])
    names = {file.name for file in state_folder.iterdir()}
    assert names == {*others, segment.name, being_written, FIRST.file, WAITED.file}


def test_an_index_of_batches_that_were_planned_anew_is_not_taken_for_that_of_this_state(tmp_path):
    """Of the same offsets, a batch keeps other events where its horizon has passed one of a key."""
    machine, other = tmp_path / "a", tmp_path / "b"
    state, young_us = folder(tmp_path / "state"), BEGIN + 10 * WINDOW.within_us
    for each in (machine, other):
        joined(state, each, Match.ID, (INITIAL, FIRST), earlier(), [])
    again = KeyedEvent(b"k", young_us, 1, b"again")
    both = KeyedEvents.of([again, KeyedEvent(b"x", young_us, 2, b"x")])
    conflicts = joined(state, machine, Match.ID, (FIRST, JoinPosition(3, 0, young_us, 0)), both, [])
    assert len(conflicts.kept) == 1
    passed, end = JoinPosition(1, 1, BEGIN, young_us), JoinPosition(3, 1, young_us, young_us)
    joined(state, other, Match.ID, (FIRST, passed), NONE, [])
    joined(state, other, Match.ID, (passed, end), both, [])
    later, after = KeyedEvent(b"k", young_us, 1, b"later"), JoinPosition(3, 2, young_us, young_us)
    batch = joined(state, machine, Match.ID, (end, after), NONE, [later])
    assert batch.matched == [(later, again)]


@pytest.mark.parametrize("match", Match)
def test_an_index_of_a_state_that_was_deleted_gives_none_of_its_events(tmp_path, match):
    """A lake and its topics are recreated at the same place: offsets name other events."""
    machines = [tmp_path / "a", tmp_path / "b"]
    lives = {"old": machines, "new": machines[:1]}
    for life, of_life in lives.items():
        state_folder = tmp_path / "state"
        state = folder(state_folder)
        for machine in of_life:
            joined(state, machine, match, (INITIAL, FIRST), earlier(life.encode()), [])
        later = [KeyedEvent(b"k", BEGIN, 0, b"later")]
        batch = joined(state, machines[1], match, (FIRST, WAITED), NONE, later)
        [(_, found)] = batch.matched
        assert found.value == life.encode()
        for file in state_folder.iterdir():
            file.unlink()


@pytest.mark.parametrize("match", Match)
@pytest.mark.parametrize("machine", ["a", "b"])
@pytest.mark.parametrize("repeated", [[4], [2, 4]])
@pytest.mark.parametrize(
    "change", [lambda event: [], lambda event: [event._replace(value=b"another log")]]
)
def test_events_of_a_batch_that_was_given_up_match_on_no_machine(
    tmp_path, match, machine, repeated, change
):
    """A batch is repeated, or planned again after a restore; its class or log has changed."""
    events = [KeyedEvent(b"%d" % n, BEGIN + n, n, b"given up") for n in range(4)]
    counting = [*events[:1], *change(events[1]), *events[2:]]

    def position(offset):
        return JoinPosition(offset, 0, BEGIN + offset, 0)

    def join(on, start, end, read):
        read = KeyedEvents.of([event for event in read if start <= event.offset < end])
        ends = INITIAL if start == 0 else position(start), position(end)
        joined(folder(tmp_path / "state"), tmp_path / on, match, ends, read, [])

    join("a", 0, 1, events)
    join("a", 1, 4, events)
    start = 1
    for end in repeated:
        join(machine, start, end, counting)
        start = end
    later = KeyedEvent(b"1", BEGIN + 1, 0, b"later")
    ends = position(4), JoinPosition(4, 1, BEGIN + 2 * WINDOW.wait_us, 0)
    batch = joined(folder(tmp_path / "state"), tmp_path / machine, match, ends, NONE, [later])
    assert batch.matched == [(later, event) for event in change(events[1])]


def joined(state, machine, match, ends, earlier, later):
    index = EarlierIndex(machine, SLICE)
    return JoinPartition(state, index, WINDOW, match).join(*ends, earlier, later)


def test_a_lost_index_ingests_many_small_files_at_once_and_no_more_than_a_task_holds(
    tmp_path, monkeypatch
):
    state = folder(tmp_path)
    segments = {}
    for n in range(6):
        files = sorted_files(
            KeyedEvents.of([KeyedEvent(b"%d" % n, BEGIN, n, b"")]), SLICE, Match.ID
        )
        name, segment = state.write_segment(n, n + 1, files, b"")
        segments[name] = segment
    ingested = []
    original = EarlierIndex.ingest

    def noting(index, files):
        ingested.append(len(files))
        original(index, files)

    monkeypatch.setattr(EarlierIndex, "ingest", noting)
    whole, at = JoinState("key left out", "id", segments), JoinPosition(6, 0, BEGIN, 0)
    assert state.load(EarlierIndex(tmp_path / "a", SLICE), whole, at) == 6
    assert ingested == [6]
    size = max(file.size for file in segments.values())
    monkeypatch.setattr("headrace.pipelines.join.index.state.MAX_COMPACTED_BYTES", 3 * size)
    ingested.clear()
    index = EarlierIndex(tmp_path / "b", SLICE)
    assert state.load(index, whole, at) == 6
    assert len(ingested) > 1
    assert max(ingested) <= 3
    assert index.ingested.files == segments.keys()
