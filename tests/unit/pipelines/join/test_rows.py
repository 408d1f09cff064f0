"""Events that were read under another declaration of their topic."""

import json
from pathlib import Path

from tests.contracts.source import spec

from headrace.model import event_schema
from headrace.pipelines.join.events import KeyedEvent
from headrace.pipelines.join.rows import UnmatchedRows, in_parts, joined_rows
from headrace.testing.memory import MemoryCluster


class View:
    id: str
    price: float


class Click:
    id: str
    view: str


def side(name, event, partition_columns=()):
    facts = {"schema": event_schema(event), "metadata": (), "partition_columns": partition_columns}
    return spec(MemoryCluster(), name, Path("nowhere"), **facts)


def event(offset, **fields):
    return KeyedEvent(b"k", 0, offset, json.dumps(fields).encode())


def test_a_later_event_is_a_dead_letter_and_an_earlier_one_is_as_not_there():
    """Else a stored event would stop the pipeline for ever, or be lost."""
    clicks = [event(n, id=f"c{n}", view=f"v{n}") for n in (3, 1, 2)]
    clicks.append(event(4, id="c4"))  # has no view
    views = [event(7, id="v3", price=0.5), event(8, id="v1")]  # the second one has no price
    [pairs] = in_parts([(clicks[0], views[0]), (clicks[1], views[1])], clicks[2:])
    joined = joined_rows(pairs, side("clicks", Click), side("views", View), "seen", 5)
    assert joined.rows.to_pylist() == [
        {"id": "c1", "view": "v1", "seen": None},
        {"id": "c2", "view": "v2", "seen": None},
        {"id": "c3", "view": "v3", "seen": {"id": "v3", "price": 0.5}},
    ]
    assert [event.offset for event in joined.events] == [1, 2, 3]
    [letter] = joined.rejected
    assert (letter.partition.topic, letter.partition.partition, letter.offset) == ("clicks", 5, 4)
    assert letter.value == clicks[3].value


def test_rows_come_in_parts_since_each_has_the_whole_earlier_event(monkeypatch):
    """Else a batch of more than 2 GiB of them would not fit in a column, and fail for ever."""
    view = event(7, id="v", price=0.5)
    matched = [(event(n, id=f"c{n}", view="v"), view) for n in range(9, -1, -2)]
    unmatched = [event(n, id=f"c{n}", view="w") for n in range(0, 10, 2)]
    size = len(matched[0][0].value) + len(view.value)
    monkeypatch.setattr("headrace.pipelines.join.rows.MAX_PART_BYTES", 2 * size)
    parts = list(in_parts(matched, unmatched))
    assert [event.offset for pairs in parts for event, _ in pairs] == list(range(10))
    assert {len(pairs) for pairs in parts} == {3, 1}
    rows = [
        row
        for pairs in parts
        for row in joined_rows(
            pairs, side("clicks", Click), side("views", View), "seen", 0
        ).rows.to_pylist()
    ]
    assert [bool(row["seen"]) for row in rows] == [n % 2 == 1 for n in range(10)]


class Written:
    """A writer that keeps the rows and takes all of them."""

    def __init__(self):
        self.ids = []

    def write(self, rows):
        self.ids += rows["id"].to_pylist()
        return []


def test_what_names_a_directory_is_judged_in_the_row_of_its_sink_alone():
    """An earlier event is a value of one column, and an unmatched event goes to another sink."""
    clicks = [event(n, id=id_, view="v") for n, id_ in enumerate(["a", "b/", "c", "d/"])]
    view = event(7, id="v/", price=0.5)
    later, earlier = side("clicks", Click, ("id",)), side("views", View)
    pairs = [(clicks[0], view), (clicks[1], view)]
    joined = joined_rows(pairs, later, earlier, "seen", 5)
    assert joined.rows["id"].to_pylist() == ["a"]
    assert joined.rows["seen"].to_pylist() == [{"id": "v/", "price": 0.5}]
    [letter] = joined.rejected
    assert (letter.offset, letter.reason) == (1, "unsafe-partition-value")
    assert letter.value == clicks[1].value
    assert letter.detail == "field 'id' holds '/', which separates directories"
    written = Written()
    unmatched = UnmatchedRows(lambda _: written, later, (), 5)
    assert unmatched.write(clicks[2:]).rejected == []
    assert written.ids == ["c", "d/"]
