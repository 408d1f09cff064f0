"""The durable state of a partition of a join."""

import msgspec
import pytest
from tests.drills.join_histories import WINDOW

from headrace.errors import JoinStateError
from headrace.pipelines.join.declaration import Match
from headrace.pipelines.join.earlier_index import EarlierIndex
from headrace.pipelines.join.events import KeyedEvent, KeyedEvents
from headrace.pipelines.join.partition import JoinPartition
from headrace.pipelines.join.position import JoinPosition
from headrace.pipelines.join.slices import slice_length_us
from headrace.pipelines.join.state import StateFolder

BEGIN = 1_764_000_000_000_000
INITIAL = JoinPosition(0, 0, 0, 0)
FIRST = JoinPosition(1, 0, BEGIN, 0)


def folder(path):
    return StateFolder(str(path), INITIAL, "p", {})


@pytest.mark.parametrize(
    "other", [{"facts": {}, "waiting": []}, {"id": "x", "segments": {}, "waiting": []}]
)
def test_a_state_of_another_form_is_refused(tmp_path, other):
    """Taken for an empty one, every event would come out unmatched."""
    (tmp_path / FIRST.file).write_bytes(msgspec.msgpack.encode(other))
    with pytest.raises(JoinStateError):
        folder(tmp_path).read(FIRST)


@pytest.mark.parametrize("match", Match)
def test_an_index_of_a_state_that_was_deleted_gives_none_of_its_events(tmp_path, match):
    """A lake and its topics are made anew at the same place: offsets name other events."""
    machines = [tmp_path / "a", tmp_path / "b"]
    lives = {"old": machines, "new": machines[:1]}
    for life, of_life in lives.items():
        earlier = KeyedEvents.of([KeyedEvent(b"k", BEGIN, 0, life.encode())])
        state_folder = tmp_path / "state"
        state = folder(state_folder)
        for machine in of_life:
            joined(state, machine, match, (INITIAL, FIRST), earlier, [])
        later = [KeyedEvent(b"k", BEGIN, 0, b"later")]
        wait_is_over = JoinPosition(1, 1, BEGIN + 2 * WINDOW.wait_us, 0)
        batch = joined(state, machines[1], match, (FIRST, wait_is_over), KeyedEvents.of([]), later)
        [(_, found)] = batch.matched
        assert found.value == life.encode()
        for file in state_folder.iterdir():
            file.unlink()


def joined(state, machine, match, ends, earlier, later):
    index = EarlierIndex(machine, slice_length_us(WINDOW.within_us))
    try:
        return JoinPartition(state, index, WINDOW, match).join(*ends, earlier, later)
    finally:
        index.close()
