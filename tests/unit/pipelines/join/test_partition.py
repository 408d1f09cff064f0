"""A partition's join gives the same events whatever is cut, crashes, is lost, moved or restored."""

import random
from dataclasses import fields, replace

import pytest
from tests.drills.join_histories import (
    MINUTE,
    History,
    SimulatedPartition,
    assert_is_that_of_the_whole,
    disturbed,
)

from headrace.pipelines.join.declaration import Match
from headrace.pipelines.join.events import KeyedEvents


@pytest.fixture(autouse=True)
def small_packs(monkeypatch):
    monkeypatch.setattr("headrace.pipelines.join.state.COMPACTION_FAN_IN", 3)


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


def what_it_gave(batch):
    values = {field.name: getattr(batch, field.name) for field in fields(batch)}
    facts = {
        name: [*value] if isinstance(value, KeyedEvents) else value
        for name, value in values.items()
    }
    of_machine = {"state_bytes": 0, "rebuilt_files": 0, "rebuild_ms": 0}
    return facts | {"waited": [*batch.waited], "counts": replace(batch.counts, **of_machine)}
