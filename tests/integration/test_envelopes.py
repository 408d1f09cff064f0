"""Topics whose records are envelopes, on a real broker and a real Spark."""

import gzip
import json
import threading
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

import confluent_kafka
import pyarrow as pa
import pytest
from click.testing import CliRunner
from tests.integration.flow import NOW_MS, Click, Flow, click
from tests.integration.test_reprocess import ALL, changed
from tests.waiting import FLUSH_SECONDS, LIMIT_SECONDS

from headrace import (
    ArrayEnvelope,
    BatchLimits,
    DeadLetterLimit,
    Kafka,
    LinesEnvelope,
    Metadata,
    ObjectEnvelope,
    Source,
    Topic,
)
from headrace.cli import main
from headrace.kafka.client.clients import connected_producer
from headrace.ledger.request import ReconcileRequest
from headrace.ledger.sums import Fate
from headrace.ledger.windows import WindowState
from headrace.operations.reconciling.reconcile import reconcile
from headrace.pipelines.reprocessing import reprocess as reprocess_module
from headrace.pipelines.reprocessing.reprocess import ReprocessRequest, reprocess
from headrace.pipelines.run.pipeline_run import Deployment
from headrace.project.loaded import LoadedProject
from headrace.service.status import State
from headrace.settings.model import KafkaSettings

PLACES = (Metadata.TOPIC, Metadata.PARTITION, Metadata.OFFSET, Metadata.EVENT_INDEX)


class EnvelopeFlow(Flow):
    """A project with a topic of envelopes, and one of single events that ``parse`` writes."""

    def __init__(self, broker, spark, folder, envelope=None):
        super().__init__(broker, spark, folder)
        self.topic = replace(self.topic, key=None, envelope=envelope or ArrayEnvelope())
        name = f"{self.name}-single"
        self.single = Topic(name, Click, key="category", event_id="event_id", partitions=2)
        self.create(name, 2)

    def send_record(self, value, headers=(), partition=0):
        sender = connected_producer({**self.client, "message.max.bytes": "2000000"})
        sender.produce(self.name, value, headers=list(headers), partition=partition)
        assert sender.flush(FLUSH_SECONDS) == 0

    def parse(self, **changes):
        return self.pipeline("parse", sink=Kafka(self.single), **changes)

    def run_one(self, pipeline):
        outcome = self.run(pipeline)[pipeline.name]
        assert outcome.state is State.FINISHED, outcome.reason
        return outcome

    def project(self, *pipelines):
        kafka = KafkaSettings(bootstrap_servers=self.broker.bootstrap_servers)
        return LoadedProject(self.settings(kafka=kafka), pipelines)

    def balance(self, pipeline, *, recount=True):
        request = ReconcileRequest(recount=recount)
        return reconcile(self.project(pipeline), [pipeline], request).books[0]

    def singles(self):
        """Returns the records of single events: those of a partition in their order."""
        settings = {"group.id": "singles", "enable.partition.eof": True}
        reader = confluent_kafka.Consumer({**self.client, **settings})
        partitions = range(self.single.partitions)
        reader.assign([confluent_kafka.TopicPartition(self.single.name, p, 0) for p in partitions])
        records, ended = [], 0
        while ended < self.single.partitions:
            record = reader.poll(LIMIT_SECONDS)
            assert record is not None
            if record.error() is None:
                records.append(record)
            else:
                assert record.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
                ended += 1
        reader.close()
        return records

    def origins(self):
        """Returns the offset and the index that the origin of each single event names, by id."""
        found = {}
        for record in self.singles():
            headers = dict(record.headers())
            place, _, index = headers["origin"].decode().partition("#")
            assert place.startswith(f"{self.name}/0:")
            found[headers["event-id"].decode()] = int(place.rpartition(":")[2]), int(index)
        return found


@pytest.fixture
def flow(broker, spark, tmp_path):
    return EnvelopeFlow(broker, spark, tmp_path)


def array(*events: bytes) -> bytes:
    return b"[" + b", ".join(events) + b"]"


def clicks(start, end):
    return array(*map(click, range(start, end)))


def test_parse_makes_single_events_in_their_order_of_envelopes_compressed_or_not(flow):
    flow.send_record(clicks(0, 50))
    flow.send_record(gzip.compress(clicks(50, 70)))
    flow.send_record(pa.compress(clicks(70, 90), "zstd", asbytes=True))
    flow.send_record(gzip.compress(clicks(90, 95)), [("content-encoding", b"gzip")])
    flow.send_record(b"[]")
    for start in range(95, 695, 200):
        flow.send_record(clicks(start, start + 200))
    outcome = flow.run_one(flow.parse())
    assert (outcome.rows_in, outcome.rows_out, outcome.dead_letters) == (695, 695, 0)
    places = [(0, range(50)), (1, range(50, 70)), (2, range(70, 90)), (3, range(90, 95))]
    places += [(5 + number, range(95 + 200 * number, 295 + 200 * number)) for number in range(3)]
    assert flow.origins() == {
        f"e{n}": (offset, index) for offset, numbers in places for index, n in enumerate(numbers)
    }
    assert flow.committed("parse") == flow.latest()
    by_partition = defaultdict(list)
    for record in flow.singles():
        by_partition[record.partition()].append(json.loads(record.value())["n"])
    assert all(numbers == sorted(numbers) for numbers in by_partition.values())
    assert sum(map(len, by_partition.values())) == 695


@pytest.mark.parametrize(
    ("envelope", "value"),
    [
        (LinesEnvelope(), b"\n".join(map(click, range(3))) + b"\n"),
        (
            ObjectEnvelope(events="data.events", copied={"category": "agent.kind"}),
            b'{"agent": {"kind": "c9"}, "data": {"events": [%s]}}'
            % b",".join(click(n).replace(b'"category"', b'"other"') for n in range(3)),
        ),
    ],
)
def test_events_may_be_lines_or_in_an_object(broker, spark, tmp_path, envelope, value):
    flow = EnvelopeFlow(broker, spark, tmp_path, envelope)
    flow.send_record(value)
    flow.run_one(flow.parse())
    assert flow.origins() == {f"e{n}": (0, n) for n in range(3)}
    categories = {json.loads(record.value())["category"] for record in flow.singles()}
    assert categories == ({"c9"} if isinstance(envelope, ObjectEnvelope) else {"c0", "c1", "c2"})


def test_what_can_not_be_divided_goes_whole_to_the_dead_letters(flow):
    bad = {
        None: "null-value",
        b"": "empty",
        b"no envelope": "not-json",
        click(1): "not-an-array",
        clicks(1, 3)[:-1]: "not-json",
        gzip.compress(clicks(1, 3))[:-1]: "bad-compression",
        gzip.compress(b" " * 40_000_000): "envelope-too-large",
        gzip.compress(b"[" + b"0," * 200_000 + b"0]"): "too-many-events",
    }
    for number, value in enumerate(bad):
        flow.send_record(value)
        flow.send_record(clicks(10 * number, 10 * number + 2))
    outcome = flow.run_one(flow.parse())
    assert (outcome.rows_in, outcome.dead_letters) == (3 * len(bad), len(bad))
    letters = {stored.letter.offset: stored.letter for stored in flow.dead()}
    assert [(letters[at].value, letters[at].reason) for at in sorted(letters)] == [*bad.items()]
    assert {letter.event_index for letter in letters.values()} == {-1}
    assert len(flow.origins()) == 2 * len(bad)


def test_a_bad_event_goes_alone_to_the_dead_letters_and_a_repeated_batch_writes_none_twice(flow):
    bad = click(1, n="seven")
    envelope = gzip.compress(array(click(0), bad, click(2), b"3"))
    flow.send_record(envelope, [("agent", b"7")])
    flow.send_record(b"no envelope")
    outcome = flow.run_one(flow.parse())
    assert (outcome.rows_in, outcome.rows_out, outcome.dead_letters) == (5, 2, 3)
    before, letters = flow.origins(), flow.dead()
    origins = [stored.origin for stored in letters]
    assert sorted(origins) == [f"{flow.name}/0:{place}" for place in ("0#1", "0#3", "1")]
    [letter] = [stored.letter for stored in letters if stored.origin == f"{flow.name}/0:0#1"]
    assert (letter.reason, letter.value) == ("wrong-type", bad)
    assert (letter.event_index, letter.headers) == (1, (("agent", b"7"),))
    assert sorted(before) == ["e0", "e2"]
    flow.forget_newest_commit("parse")
    outcome = flow.run_one(flow.parse())
    assert (outcome.rows_in, outcome.dead_letters) == (5, 3)
    assert [stored.origin for stored in flow.dead()] == origins
    assert (len(flow.singles()), flow.origins()) == (4, before)


def test_an_envelope_of_ten_thousand_events_is_one_record_of_a_small_batch(flow):
    for start in range(0, 30_000, 10_000):
        flow.send_record(gzip.compress(clicks(start, start + 10_000)))
    outcome = flow.run_one(flow.pipeline(limits=BatchLimits(max_records=1)))
    assert (outcome.batches, outcome.rows_in, outcome.rows_out) == (3, 30_000, 30_000)
    assert flow.ids() == {f"e{n}": 1 for n in range(30_000)}


def test_too_many_bad_events_stop_the_pipeline_before_any_is_written(flow):
    flow.send_record(array(*[b"0"] * 50, *map(click, range(50))))
    limit = DeadLetterLimit(max_ratio=0.2, min_records=100)
    outcome = flow.run(flow.parse(dead_letter_limit=limit))["parse"]
    assert outcome.state is State.FAILED
    assert "50 of 100" in outcome.reason
    assert flow.dead() == []


@pytest.mark.parametrize("build", [Flow.pipeline, Flow.stepped])
def test_rows_have_the_index_of_their_event_and_the_ledger_balances_with_the_table(flow, build):
    events = [click(n, event_time=NOW_MS - 7 * 3_600_000 + n) for n in range(100)]
    flow.send_record(array(*events, b"7", b"{}"))
    flow.send_record(b"no envelope")
    flow.send_record(clicks(100, 120))
    pipeline = build(flow, source=Source(flow.topic, metadata=PLACES))
    flow.run_one(pipeline)
    result = flow.balance(pipeline)
    fates = {fate: sum(w.fates.get(fate, 0) for w in result.windows) for fate in Fate}
    assert {fate: number for fate, number in fates.items() if number} == {
        Fate.OUT: 120,
        Fate.DEAD: 3,
    }
    assert sum(window.read for window in result.windows) == 123
    assert sum(window.rows for window in result.windows) == 120
    assert WindowState.UNBALANCED not in {window.state for window in result.windows}
    assert result.letters.differences == ()
    found = sorted((r["_offset"], r["_event_index"], r["n"]) for r in flow.rows(pipeline.name))
    good = [*range(100)], [*range(100, 120)]
    assert found == [(2 * at, index, n) for at in (0, 1) for index, n in enumerate(good[at])]


def test_what_is_reprocessed_again_changes_nothing(flow, monkeypatch):
    @contextmanager
    def session(settings, deployment):
        yield flow.spark

    monkeypatch.setattr(reprocess_module, "driver_session", session)
    flow.send_record(array(*map(click, range(50)), click(0), b"7"))
    pipeline = flow.pipeline(source=Source(flow.topic, metadata=PLACES))
    flow.run_one(pipeline)
    done = reprocess(
        flow.project(pipeline),
        pipeline,
        ReprocessRequest(ALL),
        Deployment(flow.broker.bootstrap_servers, flow.lake, "local[2]", {}),
        observe=lambda _: None,
        stop=threading.Event(),
    ).done
    assert (done.records, changed(done)) == (52, (0, 0, 51))
    assert len(flow.dead()) == 1


PROJECT = """
from headrace import ArrayEnvelope, EpochMillis, Kafka, Pipeline, Topic

class Click:
    event_id: str
    event_time: EpochMillis
    category: str
    n: int
    price: float | None

batches = Topic("{topic}", Click, event_time="event_time", partitions=2, envelope=ArrayEnvelope())
single = Topic("{single}", Click, key="category", event_id="event_id", partitions=2)
parse = Pipeline("parse", batches, Kafka(single))
"""


@pytest.fixture
def answer(flow, monkeypatch):
    """``answer("tail", topic)``: the JSON documents that a command prints."""
    module = f"flow_{flow.name.replace('-', '_')}"
    (flow.folder / f"{module}.py").write_text(
        PROJECT.format(topic=flow.name, single=flow.single.name)
    )
    (flow.folder / "headrace.toml").write_text(
        f'[project]\nname = "flow"\nmodules = ["{module}"]\nlake = "{flow.lake}"\n'
        f'[kafka]\nbootstrap_servers = "{flow.broker.bootstrap_servers}"\n'
    )

    def call(*arguments, code=0):
        command = [*arguments, "--json", "--project", str(flow.folder)]
        result = CliRunner().invoke(main, command)
        assert result.exit_code == code, result.output
        return [json.loads(line) for line in result.stdout.splitlines()]

    return call


def test_commands_send_envelopes_and_count_events(flow, answer):
    lines = flow.folder / "lines.ndjson"
    lines.write_bytes(click(1))
    (refused,) = answer("produce", flow.name, str(lines), code=2)
    assert "envelopes of many events" in json.dumps(refused)
    lines.write_bytes(array(click(1), b"7"))
    (sent,) = answer("produce", flow.name, str(lines), "--unchecked")
    assert (sent["sent"], sent["rejected"]) == (1, 0)
    flow.run_one(flow.parse())
    (counts,) = answer("dead-letters", "list")
    assert [topic["count"] for topic in counts["topics"] if topic["topic"] == flow.name] == [1]
    (listed,) = answer("dead-letters", "list", flow.name)
    (letter,) = listed["dead_letters"]
    assert letter["record"].endswith(":0#1")
    (shown,) = answer("dead-letters", "show", letter["record"])
    assert [each["record"] for each in shown["dead_letters"]] == [letter["record"]]
    envelope = letter["record"].removesuffix("#1")
    (of_envelope,) = answer("dead-letters", "show", envelope)
    assert of_envelope == shown
    (replay,) = answer("dead-letters", "replay", flow.name, "--record", envelope, "--dry-run")
    assert replay["sent"] == 1
    (reconciled,) = answer("reconcile", "parse")
    (balance,) = reconciled["pipelines"]
    assert sum(window["read"] for window in balance["windows"]) == 2


def test_a_replayed_event_comes_alone_and_to_those_that_rejected_it(flow, answer):
    ahead = click(1, event_time=NOW_MS + 2 * 86_400_000)
    flow.send_record(gzip.compress(array(click(0), ahead, b"7")), [("content-encoding", b"gzip")])
    flow.run_one(flow.parse())
    other = flow.pipeline("other", source=replace(flow.topic, latest_ahead=timedelta(days=3)))
    flow.run_one(other)
    record = f"{flow.name}/0:0#1"
    (replayed,) = answer("dead-letters", "replay", flow.name, "--record", record)
    assert (replayed["sent"], replayed["readers"]) == (1, {"parse": 1})
    accepting = replace(flow.topic, latest_ahead=timedelta(days=3))
    outcome = flow.run_one(flow.parse(source=accepting))
    assert (outcome.rows_in, outcome.rows_out) == (1, 1)
    assert flow.origins() == {"e0": (0, 0), "e1": (1, 0)}
    assert flow.run_one(other).rows_in == 0
    (replayed,) = answer("dead-letters", "replay", flow.name)
    assert (replayed["sent"], replayed["already"]) == (1, 1)
    flow.run_one(flow.parse(source=accepting))
    again = [stored for stored in flow.dead() if stored.origin == f"{flow.name}/0:2#0"]
    assert [(stored.letter.value, stored.replays) for stored in again] == [(b"7", 1)]
