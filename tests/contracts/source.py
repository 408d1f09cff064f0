"""What every cluster a source reads from must do: run on memory and on real Kafka.

A test module imports ``SourceContract``, subclasses it and gives the fixture ``lab``: a
:class:`Lab` that creates topics and appends records on the cluster under test.
"""

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Protocol

import pytest

from headrace.errors import (
    PartitionsAddedError,
    RetentionPassedError,
    TopicMissingError,
    TopicRecreatedError,
)
from headrace.kafka.client.headers import Headers
from headrace.kafka.dead_letters.replayed import PartitionId, addressees
from headrace.kafka.read.cluster import Cluster
from headrace.model import BatchLimits, Metadata, OffsetRange, Start, TopicPartition, event_schema
from headrace.pipelines.source.offsets import SourceOffset, ranges_between
from headrace.pipelines.source.planning.planner import Planner
from headrace.pipelines.source.reading.reader import RangeReader, ReadRange, TaskReader
from headrace.pipelines.source.reading.rereading import read_report
from headrace.pipelines.source.spec import (
    BatchPlanning,
    RecordDecoding,
    SourceFiles,
    SourceSpec,
)
from headrace.pipelines.source.state import SourceState


class Numbered:
    n: int
    name: str


class Lab(Protocol):
    cluster: Cluster

    def create(self, topic: str, partitions: int) -> None: ...
    def add_partitions(self, topic: str, partitions: int) -> None: ...
    def append(
        self, topic: str, partition: int, values: list[bytes | None], headers: Headers = ()
    ) -> None: ...
    def delete_before(self, topic: str, partition: int, offset: int) -> None: ...
    def recreate(self, topic: str, partitions: int) -> None: ...
    def commit(self, group: str, topic: str, offsets: dict[int, int]) -> None: ...
    def replay(self, topic: str, partition: int, value: bytes, *readers: str) -> None: ...


def event(n: int) -> bytes:
    return json.dumps({"n": n, "name": f"name {n}"}).encode()


def spec(cluster: Cluster, topic: str, folder: Path, **changes: Any) -> SourceSpec:
    """Returns a source of numbers; ``changes`` are of its own fields, or of those of its parts."""
    declared = SourceSpec(
        pipeline="numbers",
        topic=topic,
        cluster=cluster,
        decoding=RecordDecoding(
            schema=event_schema(Numbered),
            event_time=None,
            earliest_event_us=0,
            latest_ahead_us=0,
            metadata=(Metadata.OFFSET, Metadata.KEY),
            partition_columns=(),
        ),
        planning=BatchPlanning(
            start=Start.EARLIEST,
            consumer_group=f"headrace.{topic}",
            limits=BatchLimits(max_records=1_000),
            min_tasks=0,
        ),
        files=SourceFiles(
            state=folder / "state",
            staging=str(folder / "staging"),
            checkpoint=str(folder / "checkpoint"),
        ),
    )
    return changed(declared, **changes)


def changed(declared: SourceSpec, **changes: Any) -> SourceSpec:
    """Returns the source with other values of its own fields, or of those of its parts."""
    for part in ("decoding", "planning", "files", "selection"):
        names = {field.name for field in fields(getattr(declared, part))} & changes.keys()
        of_part = {name: changes.pop(name) for name in names}
        declared = replace(declared, **{part: replace(getattr(declared, part), **of_part)})
    return replace(declared, **changes)


def reader_of(
    found: SourceSpec, range_: OffsetRange, planned_ms: int, **planned: Any
) -> RangeReader:
    """The reader of a range, as it was planned."""
    return RangeReader(found, range_, ReadRange(range_, planned_ms, **planned))


def read(found: SourceSpec, start: SourceOffset, end: SourceOffset) -> list[tuple[int, int, int]]:
    rows = []
    for range_ in ranges_between(start, end):
        for table in reader_of(found, range_, end.planned_ms, topic_id=end.topic_id).tables():
            rows += [
                (range_.partition.partition, row["_offset"], row["n"]) for row in table.to_pylist()
            ]
    return rows


def drained(planner: Planner, start: SourceOffset) -> SourceOffset:
    """The end of a batch that takes all there is, without waiting for its wall clock."""
    planner.stop_at_latest()
    return planner.plan_next(start)


class SourceContract:
    @pytest.fixture
    def topic(self, lab, topic_name):
        lab.create(topic_name, 2)
        return topic_name

    def test_records_come_in_order_of_offset_once(self, lab, topic, tmp_path):
        lab.append(topic, 0, [event(n) for n in range(50)])
        lab.append(topic, 1, [event(n) for n in range(100, 130)])
        found = spec(lab.cluster, topic, tmp_path)
        planner = Planner(found)
        start = planner.initial_offset()
        rows = read(found, start, drained(planner, start))
        assert rows == [(0, n, n) for n in range(50)] + [(1, n, n + 100) for n in range(30)]

    def test_a_batch_read_again_gives_the_same(self, lab, topic, tmp_path):
        lab.append(topic, 0, [event(n) for n in range(20)])
        found = spec(lab.cluster, topic, tmp_path)
        planner = Planner(found)
        start = planner.initial_offset()
        end = drained(planner, start)
        lab.append(topic, 0, [event(n) for n in range(20, 40)])
        assert read(found, start, end) == read(found, start, end)
        assert Planner(found).tasks(start, end) == planner.tasks(start, end)

    def test_nothing_new_is_the_start_itself(self, lab, topic, tmp_path):
        planner = Planner(spec(lab.cluster, topic, tmp_path))
        start = planner.initial_offset()
        assert drained(planner, start) == start

    def test_the_first_position_is_the_same_after_a_crash(self, lab, topic, tmp_path):
        found = spec(lab.cluster, topic, tmp_path, start=Start.LATEST)
        lab.append(topic, 0, [event(1)])
        first = Planner(found).initial_offset()
        lab.append(topic, 0, [event(2)])
        assert Planner(found).initial_offset() == first
        assert first.partitions == {0: 1, 1: 0}

    def test_it_can_begin_at_the_committed_offsets(self, lab, topic, tmp_path):
        lab.append(topic, 0, [event(n) for n in range(9)])
        lab.append(topic, 1, [event(n) for n in range(9)])
        lab.commit(f"headrace.{topic}", topic, {0: 4})
        found = spec(lab.cluster, topic, tmp_path, start=Start.COMMITTED)
        assert Planner(found).initial_offset().partitions == {0: 4, 1: 0}

    def test_a_range_ends_by_position_and_reads_nothing_beyond(self, lab, topic, tmp_path):
        lab.append(topic, 0, [event(n) for n in range(50)])
        found = spec(lab.cluster, topic, tmp_path)
        reader = reader_of(found, OffsetRange(TopicPartition(topic, 0), 10, 20), 0, topic_id="id")
        rows = [row["n"] for table in reader.tables() for row in table.to_pylist()]
        report = reader.report()
        assert rows == list(range(10, 20))
        assert (report.records, report.position) == (10, 20)

    def test_a_report_says_how_far_the_reader_came(self, lab, topic, tmp_path):
        lab.append(topic, 0, [event(n) for n in range(1_500)])
        found = spec(lab.cluster, topic, tmp_path)
        reader = reader_of(found, OffsetRange(TopicPartition(topic, 0), 0, 1_500), 0, topic_id="id")
        tables = reader.tables()
        rows = next(tables).num_rows
        assert reader.report().position == rows
        rows += sum(table.num_rows for table in tables)
        assert (rows, reader.report().position) == (1_500, 1_500)

    def test_a_full_batch_does_not_wait_and_the_rest_comes_next(self, lab, topic, tmp_path):
        lab.append(topic, 0, [event(n) for n in range(100)])
        found = spec(lab.cluster, topic, tmp_path, limits=BatchLimits(max_records=60))
        planner = Planner(found)
        first = planner.plan_next(planner.initial_offset())
        second = drained(planner, first)
        assert first.partitions[0] == 60
        assert second.partitions[0] == 100

    def test_a_paused_partition_stays_and_catches_up_in_order(self, lab, topic, tmp_path):
        found = spec(lab.cluster, topic, tmp_path)
        state = SourceState(found.files.state)
        state.pause(topic, frozenset({0}))
        lab.append(topic, 0, [event(n) for n in range(5)])
        lab.append(topic, 1, [event(n) for n in range(5)])
        planner = Planner(found)
        start = planner.initial_offset()
        held = drained(planner, start)
        assert held.partitions == {0: 0, 1: 5}
        state.pause(topic, frozenset())
        rows = read(found, held, drained(planner, held))
        assert rows == [(0, n, n) for n in range(5)]

    def test_a_new_partition_is_read_from_offset_0(self, lab, topic, tmp_path):
        found = spec(lab.cluster, topic, tmp_path)
        start = Planner(found).initial_offset()
        lab.add_partitions(topic, 4)
        lab.append(topic, 3, [event(n) for n in range(7)])
        placed = drained(Planner(found), start)
        assert placed.partitions == {0: 0, 1: 0, 2: 0, 3: 0}
        end = drained(Planner(found), placed)
        assert read(found, placed, end) == [(3, n, n) for n in range(7)]

    def test_new_partitions_are_refused_where_the_last_record_of_a_key_counts(
        self, lab, topic, tmp_path
    ):
        lab.append(topic, 0, [event(1)])
        found = spec(lab.cluster, topic, tmp_path, needs_same_partitions=True)
        planner = Planner(found)
        start = drained(planner, planner.initial_offset())
        lab.add_partitions(topic, 4)
        for each in (planner, Planner(found)):
            with pytest.raises(PartitionsAddedError) as raised:
                drained(each, start)
            assert (raised.value.known_partitions, raised.value.partitions) == (2, 4)

    def test_a_new_partition_whose_first_records_are_gone_is_refused(self, lab, topic, tmp_path):
        found = spec(lab.cluster, topic, tmp_path)
        start = Planner(found).initial_offset()
        lab.add_partitions(topic, 3)
        lab.append(topic, 2, [event(n) for n in range(7)])
        lab.delete_before(topic, 2, 6)
        with pytest.raises(RetentionPassedError, match="6 offsets are gone"):
            Planner(found).plan_next(start)

    def test_a_planned_batch_is_not_read_from_a_topic_made_anew(self, lab, topic, tmp_path):
        lab.append(topic, 0, [event(n) for n in range(5)])
        found = spec(lab.cluster, topic, tmp_path)
        planner = Planner(found)
        start = planner.initial_offset()
        end = drained(planner, start)
        lab.recreate(topic, 2)
        lab.append(topic, 0, [event(n) for n in range(9)])
        (task,) = Planner(found).tasks(start, end)
        assert isinstance(task.refusal, TopicRecreatedError)

    def test_a_planned_batch_whose_records_are_gone_is_not_read(self, lab, topic, tmp_path):
        lab.append(topic, 0, [event(n) for n in range(5)])
        found = spec(lab.cluster, topic, tmp_path)
        planner = Planner(found)
        start = planner.initial_offset()
        end = drained(planner, start)
        lab.delete_before(topic, 0, 2)
        (task,) = Planner(found).tasks(start, end)
        assert isinstance(task.refusal, RetentionPassedError)

    def test_a_missing_topic_is_refused(self, lab, tmp_path, topic_name):
        with pytest.raises(TopicMissingError, match="headrace apply"):
            Planner(spec(lab.cluster, f"{topic_name}-none", tmp_path)).initial_offset()

    def test_a_recreated_topic_is_refused_even_when_it_holds_more(self, lab, topic, tmp_path):
        lab.append(topic, 0, [event(1)])
        planner = Planner(spec(lab.cluster, topic, tmp_path))
        end = drained(planner, planner.initial_offset())
        lab.recreate(topic, 2)
        lab.append(topic, 0, [event(n) for n in range(9)])
        with pytest.raises(TopicRecreatedError, match="checkpoint reset numbers --to earliest"):
            planner.plan_next(end)

    def test_retention_past_the_checkpoint_is_refused_with_the_count(self, lab, topic, tmp_path):
        lab.append(topic, 0, [event(n) for n in range(30)])
        planner = Planner(spec(lab.cluster, topic, tmp_path))
        start = planner.initial_offset()
        lab.delete_before(topic, 0, 12)
        with pytest.raises(RetentionPassedError, match="12 offsets are gone"):
            planner.plan_next(start)

    def test_a_record_that_was_replayed_for_others_is_left_out_and_counted(
        self, lab, topic, tmp_path
    ):
        lab.append(topic, 0, [event(0)])
        lab.replay(topic, 0, event(1), "others")
        lab.replay(topic, 0, event(2), "others", "numbers")
        lab.append(topic, 0, [event(3)])
        found = spec(lab.cluster, topic, tmp_path)
        range_ = OffsetRange(TopicPartition(topic, 0), 0, 4)
        topic_id = Planner(found).initial_offset().topic_id
        reader = reader_of(found, range_, 0, topic_id=topic_id, may_hold_replays=True)
        rows = [row["n"] for table in reader.tables() for row in table.to_pylist()]
        report = reader.report()
        assert rows == [0, 2, 3]
        assert (report.records, report.replays_skipped, report.position) == (3, 1, 4)

    @pytest.mark.parametrize("elsewhere", ["another topic", "another partition", "recreated"])
    def test_a_copy_of_a_replayed_record_is_for_all(self, lab, topic, tmp_path, elsewhere):
        replayed_to = {
            "another topic": PartitionId(TopicPartition(f"{topic}-raw", 0), "id"),
            "another partition": PartitionId(
                TopicPartition(topic, 1), lab.cluster.live(topic).topic_id
            ),
            "recreated": PartitionId(TopicPartition(topic, 0), "id of before"),
        }
        lab.append(topic, 0, [event(0)], (addressees(["others"], replayed_to[elsewhere]),))
        lab.replay(topic, 0, event(1), "numbers")
        found = spec(lab.cluster, topic, tmp_path)
        start = Planner(found).initial_offset()
        (work,) = Planner(found).tasks(start, start.advanced({0: 2, 1: 0}, {}, planned_ms=1))
        assert work.may_hold_replays
        reader = TaskReader(found, [work])
        assert [row["n"] for table in reader.tables() for row in table.to_pylist()] == [0, 1]
        assert reader.reports()[0].replays_skipped == 0

    def test_a_planned_batch_leaves_out_what_was_replayed_for_others(self, lab, topic, tmp_path):
        lab.append(topic, 0, [event(0)])
        lab.replay(topic, 0, event(1), "others")
        found = spec(lab.cluster, topic, tmp_path)
        start = Planner(found).initial_offset()
        end = start.advanced({0: 2, 1: 0}, {}, planned_ms=1)
        reader = TaskReader(found, Planner(found).tasks(start, end))
        assert [row["n"] for table in reader.tables() for row in table.to_pylist()] == [0]
        assert read_report(found, OffsetRange(TopicPartition(topic, 0), 0, 2), end).records == 1

    def test_headers_are_looked_at_only_where_replays_can_be(self, lab, topic, tmp_path):
        for partition in (0, 1):
            lab.append(topic, partition, [event(n) for n in range(10)])
        lab.replay(topic, 0, event(10), "others")
        lab.append(topic, 0, [event(n) for n in range(11, 20)])
        planner = Planner(spec(lab.cluster, topic, tmp_path))
        start = planner.initial_offset()
        at = {n: start.advanced({0: n, 1: 10}, {}, planned_ms=1) for n in (0, 10, 11, 20)}
        looks = {
            (first, end): [one.may_hold_replays for one in planner.tasks(at[first], at[end])]
            for first, end in ((0, 10), (10, 11), (11, 20))
        }
        assert looks == {(0, 10): [False], (10, 11): [True], (11, 20): [False]}
        assert [one.may_hold_replays for one in planner.tasks(start, at[20])] == [
            True,
            False,
        ]

    def test_bad_records_are_reported_with_their_bytes(self, lab, topic, tmp_path):
        lab.append(topic, 0, [event(0), b"not json", None, event(3)])
        found = spec(lab.cluster, topic, tmp_path)
        reader = reader_of(found, OffsetRange(TopicPartition(topic, 0), 0, 4), 0, topic_id="id")
        rows = [row["_offset"] for table in reader.tables() for row in table.to_pylist()]
        dead = [(letter.offset, letter.value) for letter in reader.report().dead]
        assert rows == [0, 3]
        assert dead == [(1, b"not json"), (2, None)]
