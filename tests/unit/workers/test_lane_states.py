"""The diagram of a lane's states is that of the transitions which the code allows."""

import inspect
import re

from headrace.workers.lanes import lane
from headrace.workers.states import LANE, LaneState

_MOVE = re.compile(r"^    (?P<start>[\w ]+) > (?P<end>\w+) +``(?P<method>\w+)``: ", re.MULTILINE)
_DIAGRAM = inspect.getdoc(lane).split("    starting > running")[0]
_BOX = [line for line in _DIAGRAM.splitlines() if line.startswith("    |")]


def test_every_state_is_drawn_once():
    drawn = re.findall(r"[a-z]{2,}", _DIAGRAM.split("::")[1])
    assert sorted(drawn) == sorted(LaneState)


def test_the_moves_are_those_that_are_legal():
    box = {LaneState(word) for line in _BOX for word in re.findall(r"[a-z]+", line)}
    moves = {
        (start, LaneState(move["end"]))
        for move in _MOVE.finditer(inspect.getdoc(lane))
        for start in (box if move["start"] == "all four" else {LaneState(move["start"])})
    }
    assert moves == {(start, end) for start, ends in LANE.items() for end in ends}


def test_each_move_names_its_method():
    methods = {move["method"] for move in _MOVE.finditer(inspect.getdoc(lane))}
    assert {name for name in methods if not hasattr(lane.Lane, name)} == set()
