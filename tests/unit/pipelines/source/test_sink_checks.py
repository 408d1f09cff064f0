"""Each record leaves a range by one door, and what a sink asks is asked of its own rows alone."""

import json
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from tests.contracts.source import reader_of, spec

from headrace.kafka.dead_letters.limiter import BadRuns
from headrace.ledger.sums import Fate, Hop
from headrace.model import EpochMillis, Metadata, OffsetRange, TopicPartition, event_schema
from headrace.pipelines.late_data.rule import LateRule
from headrace.pipelines.ledger.counting.tally import LedgerRule
from headrace.sinks.api import RejectedRow
from headrace.testing.memory import MemoryCluster

NOW_MS = 1_764_000_000_000
TIMES_MS = {"on time": NOW_MS, "late": NOW_MS - 3_600_001, "ahead": NOW_MS + 1}


class Named:
    n: int
    at: EpochMillis
    name: str


class SideTable:
    """A writer that rejects the name "no"."""

    def __init__(self):
        self.taken = []

    def write(self, rows):
        names = rows["name"].to_pylist()
        bad = [i for i, name in enumerate(names) if name == "no"]
        self.taken += [n for i, n in enumerate(rows["n"].to_pylist()) if i not in bad]
        return [RejectedRow(i, "wrong-value", "no") for i in bad]

    def close(self):
        return []

    def abort(self):
        self.taken = []


def letter_of(time, name, destination):
    """The reason of the dead letter that an event becomes; empty: it is in a table."""
    if time == "unreadable":
        return "not-json"
    if time == "ahead":
        return "event-time-out-of-bounds"
    if time == "late" and destination == "dead letters":
        return "late-event"
    if time == "late" and destination == "side table":
        return "wrong-value" if name == "no" else ""
    return "unsafe-partition-value" if name == "a/b" else ""


@given(
    events=st.lists(
        st.tuples(
            st.sampled_from([*TIMES_MS, "unreadable"]), st.sampled_from(["yes", "no", "a/b"])
        ),
        min_size=1,
        max_size=12,
    ),
    destination=st.sampled_from(["keep", "dead letters", "side table"]),
)
def test_every_record_is_a_row_or_in_the_side_table_or_a_dead_letter(events, destination):
    cluster, side = MemoryCluster(), SideTable()
    cluster.create("t", 1)
    for n, (time, name) in enumerate(events):
        event = {"n": n, "at": TIMES_MS.get(time), "name": name}
        cluster.append("t", 0, b"{" if time == "unreadable" else json.dumps(event).encode())
    rule = LateRule(
        to_dead_letters=destination == "dead letters",
        writers=(lambda _: side) if destination == "side table" else None,
    )
    with tempfile.TemporaryDirectory() as folder:
        declared = spec(
            cluster,
            "t",
            Path(folder),
            schema=event_schema(Named),
            event_time="at",
            metadata=(Metadata.OFFSET,),
            late=rule,
            partition_columns=("name",),
            ledger=LedgerRule(3600, "at", None),
        )
        range_ = OffsetRange(TopicPartition("t", 0), 0, len(events))
        reader = reader_of(declared, range_, NOW_MS, topic_id="id", event_us=NOW_MS * 1000)
        rows = [row["_offset"] for table in reader.tables() for row in table.to_pylist()]
    report = reader.report()
    letters = {n: letter_of(*event, destination) for n, event in enumerate(events)}
    diverted = destination == "side table"
    beside = [n for n, (time, _) in enumerate(events) if time == "late" and diverted]
    assert {letter.offset: letter.reason for letter in report.dead} == {
        n: reason for n, reason in letters.items() if reason
    }
    assert side.taken == [n for n in beside if not letters[n]]
    assert rows == [n for n, reason in letters.items() if not reason and n not in beside]
    bad = [n for n, why in letters.items() if why not in {"", "late-event", "wrong-value"}]
    assert report.bad_runs == BadRuns.of(bad, len(events))
    counted = dict.fromkeys(Fate, 0)
    for line in report.ledger:
        if line.key.hop is Hop.READ:
            counted[line.key.fate] += line.sums.number
    assert counted[Fate.IN] == len(events)
    assert counted[Fate.OUT] == len(rows)
    assert counted[Fate.IN] == sum(counted[fate] for fate in (Fate.OUT, Fate.LATE, Fate.DEAD))
