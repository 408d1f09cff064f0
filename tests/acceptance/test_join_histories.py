"""Many random histories of a join, with crashes, lost indexes, two machines and a restore."""

import random
import shutil

import pytest
from tests.drills.join_histories import (
    History,
    SimulatedPartition,
    assert_is_that_of_the_whole,
    disturbed,
)

from headrace.pipelines.join.declaration import Match


@pytest.mark.drill
@pytest.mark.timeout(3500)
@pytest.mark.parametrize("match", Match)
def test_histories_give_what_the_reference_gives(tmp_path, drill_run, match, monkeypatch):
    monkeypatch.setattr("headrace.pipelines.join.index.state.COMPACTION_FAN_IN", 3)
    histories = drill_run.size(short=5, long=1_000)
    for number in range(histories):
        rng = random.Random(drill_run.random.randrange(2**32))
        folder = tmp_path / str(number)
        folder.mkdir()
        history = History.random(rng, match)
        assert_is_that_of_the_whole(
            disturbed(SimulatedPartition(folder, match), history, rng), history
        )
        shutil.rmtree(folder)
    drill_run.report(histories=histories)
