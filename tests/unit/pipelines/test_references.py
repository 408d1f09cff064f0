import json
from dataclasses import replace

import pyarrow as pa
import pytest
from tests.contracts.source import drained, event, spec

from headrace import Lake, Pipeline, Topic, enrich
from headrace.errors import ReferenceRecreatedError, ReferenceTooLargeError
from headrace.kafka.table.topic_table import TopicPosition, live_positions
from headrace.model import Json, event_schema
from headrace.pipelines.references.table import ReferenceReader, ReferenceSpec, ReferenceTable
from headrace.pipelines.rules import pipeline_faults
from headrace.pipelines.source.offsets import SourceOffset
from headrace.pipelines.source.planning.planner import Planner
from headrace.pipelines.start.checkpoint import PlannedBatch
from headrace.testing.memory import MemoryCluster


class Campaign:
    name: str
    budget: int | None


SPEC = ReferenceSpec("campaigns", event_schema(Campaign), Json(), ("name",), 1_000_000)
KEPT = {"min.compaction.lag.ms": "86400000"}


@pytest.fixture
def cluster():
    cluster = MemoryCluster()
    cluster.create("campaigns", 2)
    return cluster


@pytest.fixture
def reader(cluster, request):
    return ReferenceReader(request.node.name, cluster)


def put(cluster, key, name, partition=0):
    value = None if name is None else json.dumps({"name": name, "budget": 1}).encode()
    cluster.append("campaigns", partition, value, key.encode())


def now(cluster):
    return live_positions(cluster, ["campaigns"])["campaigns"]


def names(table, *keys):
    column = pa.array([None if key is None else key.encode() for key in keys], pa.binary())
    return [None if found is None else found["name"] for found in table.find(column).to_pylist()]


def test_the_newest_record_of_a_key_before_the_position_counts(cluster, reader):
    put(cluster, "c1", "old")
    put(cluster, "c2", "second", partition=1)
    first = now(cluster)
    put(cluster, "c1", "new")
    put(cluster, "c3", "third")
    put(cluster, "c2", None, partition=1)
    assert names(reader.table(SPEC, first), "c1", None, "c2", "c3", "c1") == [
        *("old", None, "second", None, "old")
    ]
    assert names(reader.table(SPEC, now(cluster)), "c1", "c2", "c3") == ["new", None, "third"]


def test_an_earlier_position_is_read_from_the_start_again(cluster, reader):
    put(cluster, "c1", "old")
    first = now(cluster)
    put(cluster, "c1", "new")
    assert names(reader.table(SPEC, now(cluster)), "c1") == ["new"]
    assert names(reader.table(SPEC, first), "c1") == ["old"]


def test_a_key_whose_replaced_record_compaction_has_removed_has_no_values(cluster, reader):
    put(cluster, "c1", "old")
    first = now(cluster)
    put(cluster, "c1", "new")
    cluster.delete_before("campaigns", 0, 1)
    assert names(reader.table(SPEC, first), "c1") == [None]
    assert names(reader.table(SPEC, now(cluster)), "c1") == ["new"]


def test_a_batch_that_is_planned_anew_looks_up_what_is_there_now(cluster, reader, tmp_path):
    cluster.create("numbers", 1)
    cluster.append("numbers", 0, event(1))
    found = spec(cluster, "numbers", tmp_path, references=("campaigns",))
    for name in ("old", "new"):
        put(cluster, "c1", name)
        planner = Planner(found)  # without a checkpoint, which would know the batch
        end = drained(planner, planner.initial_offset())
        assert names(reader.table(SPEC, end.references["campaigns"]), "c1") == [name]


def test_only_what_is_new_is_read(cluster, reader, monkeypatch):
    read = []
    original = MemoryCluster.read

    def noted(self, ranges):
        read.extend((range_.partition.partition, range_.start, range_.end) for range_ in ranges)
        return original(self, ranges)

    monkeypatch.setattr(MemoryCluster, "read", noted)
    put(cluster, "c1", "old")
    for name in ("new", "newer"):
        reader.table(SPEC, now(cluster))
        reader.table(SPEC, now(cluster))
        put(cluster, "c1", name)
    assert read == [(0, 0, 1), (0, 1, 2)]


def test_records_of_a_log_that_was_cut_and_has_grown_again_are_read(cluster, reader):
    put(cluster, "c1", "kept")
    put(cluster, "c2", "lost")
    assert names(reader.table(SPEC, now(cluster)), "c1", "c2") == ["kept", "lost"]
    cluster.truncate("campaigns", 0, 1)
    put(cluster, "c3", "new")
    assert names(reader.table(SPEC, now(cluster)), "c1", "c2", "c3") == ["kept", None, "new"]


def test_each_pipeline_stands_at_a_position_of_its_own(cluster, reader):
    put(cluster, "c1", "old")
    first = now(cluster)
    behind = reader.table(SPEC, first)
    put(cluster, "c1", "new")
    ahead = replace(reader, pipeline="ahead").table(SPEC, now(cluster))
    assert (names(behind, "c1"), names(ahead, "c1")) == (["old"], ["new"])


def test_a_record_that_is_no_event_leaves_its_key_without_values(cluster, reader, caplog):
    put(cluster, "c1", "old")
    put(cluster, "c2", "kept")
    cluster.append("campaigns", 0, b'{"budget": 1}', b"c1")
    assert names(reader.table(SPEC, now(cluster)), "c1", "c2") == [None, "kept"]
    assert "campaigns at offset 2 with key b'c1'" in caplog.text
    assert "missing-field" in caplog.text


def test_values_stay_right_while_unused_rows_are_dropped(cluster, reader, monkeypatch):
    monkeypatch.setattr(ReferenceTable, "min_unused_rows", 3)
    for round_ in range(20):
        for n in range(4):
            put(cluster, f"c{n}", f"{n} in round {round_}")
        put(cluster, "gone", None if round_ % 2 else "there")
        table = reader.table(SPEC, now(cluster))
        expected = [f"{n} in round {round_}" for n in range(4)]
        assert names(table, "c0", "c1", "c2", "c3") == expected
        assert names(table, "gone") == [None if round_ % 2 else "there"]
        assert table.rows <= 4 + 1 + max(5, 3) + 5


def test_a_table_that_needs_too_much_memory_is_an_error_with_the_figures(cluster, reader):
    for n in range(100):
        put(cluster, f"c{n}", "x" * 100)
    with pytest.raises(ReferenceTooLargeError) as raised:
        reader.table(replace(SPEC, max_bytes=20_000), now(cluster))
    assert raised.value.needed_bytes > raised.value.max_bytes == 20_000
    assert names(reader.table(SPEC, now(cluster)), "c99") == ["x" * 100]


def test_a_topic_that_was_made_again_is_refused(cluster, reader):
    put(cluster, "c1", "old")
    before = now(cluster)
    cluster.create("campaigns", 2)
    with pytest.raises(ReferenceRecreatedError):
        reader.table(SPEC, before)


def test_after_a_failed_read_the_table_is_read_again(cluster, reader, monkeypatch):
    put(cluster, "c1", "old")
    first = now(cluster)
    reader.table(SPEC, first)
    put(cluster, "c1", "new")

    read = MemoryCluster.read

    def failing(self, ranges):
        yield from read(self, ranges[:1])
        raise OSError

    with monkeypatch.context() as patch:
        patch.setattr(MemoryCluster, "read", failing)
        with pytest.raises(OSError):
            reader.table(SPEC, now(cluster))
    assert names(reader.table(SPEC, first), "c1") == ["old"]


def test_a_batch_has_the_references_of_its_source_that_was_planned_last():
    old, new = TopicPosition("id", {0: 3}), TopicPosition("id", {0: 5}, {0: 2})
    ends = {
        "clicks": SourceOffset("clicks", "a", {0: 1}, 20, references={"campaigns": new}),
        "views": SourceOffset("views", "b", {0: 1}, 10, references={"campaigns": old, "x": old}),
    }
    planned = PlannedBatch(0, ends, ends, ends)
    assert planned.references == {"campaigns": new, "x": old}
    assert SourceOffset.from_json(ends["views"].to_json()) == ends["views"]


class Click:
    event_id: str
    campaign: str
    name: str


CLICKS = Topic("clicks", event=Click)
CAMPAIGNS = Topic("campaigns", event=Campaign, compaction=True, config=KEPT)
ENRICH = enrich(CAMPAIGNS, by="campaign", columns=["name"], prefix="campaign_")


def messages(step):
    return [fault.message for fault in pipeline_faults(Pipeline("p", CLICKS, Lake("t"), [step]))]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"by": "campaign_id"}, "enrich: 'campaign_id' is not a column"),
        ({"columns": ["title"]}, "enrich, campaigns: 'title' is not a column"),
        ({"columns": []}, "enrich.columns is []"),
        ({"columns": "name"}, "enrich.columns is 'name'"),
        ({"prefix": ""}, "enrich: the added column is 'name', and 'name' is a column"),
        ({"max_bytes": 0}, "enrich.max_bytes is 0; it must be a whole number of at least 1"),
        ({"max_bytes": 1 << 31}, f"enrich.max_bytes is {1 << 31}"),
        ({"reference": "campaigns"}, "enrich.reference is 'campaigns'"),
        (
            {"reference": replace(CAMPAIGNS, compaction=False)},
            "enrich.reference 'campaigns' is not compacted",
        ),
        (
            {"reference": replace(CAMPAIGNS, config={})},
            "enrich.reference 'campaigns' does not say how long replaced records are kept",
        ),
    ],
)
def test_a_wrong_declaration_is_a_fault_with_its_value(changes, message):
    assert messages(replace(ENRICH, **changes)) == [f"pipeline 'p': {message}"]


def test_a_right_declaration_has_no_fault_and_names_its_reference():
    assert messages(ENRICH) == []
    assert Pipeline("p", CLICKS, Lake("t"), steps=[ENRICH, ENRICH]).references == (CAMPAIGNS,)
    broken = Pipeline("p", CLICKS, Lake("t"), steps=[replace(ENRICH, reference="campaigns")])
    assert broken.references == ()
