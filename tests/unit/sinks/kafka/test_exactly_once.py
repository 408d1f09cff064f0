"""What the driver sends in a transaction, and what it does when one fails; without brokers."""

import pickle
from dataclasses import replace

import pyarrow as pa
import pytest

from headrace import Guarantee, Kafka, Topic
from headrace.errors import SinkError, SinkUnavailableError
from headrace.kafka.write.transactions import TransactionFencedError, TransactionUnsettledError
from headrace.sinks import batch_transactions
from headrace.sinks.api import DeclaredRows, SinkContext, Transaction
from headrace.sinks.kafka import exactly_once
from headrace.sinks.topic_positions import TopicPositions

TOPIC = Topic("raw", config={"max.message.bytes": "2000"})
SINK = Kafka(TOPIC, guarantee=Guarantee.EXACTLY_ONCE)
RAW = pa.schema([("key", pa.string()), ("value", pa.string())])


class Cluster:
    """What producers have committed; failures are raised by the next transactions, in turn."""

    def __init__(self):
        self.sent, self.positions, self.failures = [], {}, []
        self.producers = self.open_producers = self.reads = 0
        self.is_lost = False

    def producer(self, config, transactional_id):
        self.producers += 1
        self.open_producers += 1
        self.transactional_id = transactional_id
        return Producer(self)

    def versions(self, app_ids):
        self.reads += 1
        return {name: self.positions[name] for name in app_ids if name in self.positions}


class Producer:
    def __init__(self, cluster):
        self.cluster = cluster

    def renew(self):
        is_renewed, self.cluster.is_lost = self.cluster.is_lost, False
        self.cluster.producers += is_renewed
        return is_renewed

    def send(self, records):
        records = list(records)
        failure, lands = self.cluster.failures.pop(0) if self.cluster.failures else (None, True)
        if lands:
            for record in records:
                if record.topic == "raw":
                    self.cluster.sent.append(record)
                else:
                    self.cluster.positions[record.key.decode()] = int(record.value)
        if failure is not None:
            raise failure

    def close(self):
        self.cluster.open_producers -= 1


@pytest.fixture
def cluster(monkeypatch):
    cluster = Cluster()
    monkeypatch.setattr(batch_transactions, "TransactionalProducer", cluster.producer)
    monkeypatch.setattr(exactly_once, "ensure_changelog", lambda *_: None)
    monkeypatch.setattr(TopicPositions, "versions", lambda _, app_ids: cluster.versions(app_ids))
    return cluster


def opened():
    return SINK.open(SinkContext("p", "", {}), RAW)


def written(driver, task, *parts):
    """The pieces of a task that writes several times."""
    writer = pickle.loads(pickle.dumps(driver.writers))(task)
    for values in parts:
        rows = [{"key": None, "value": value} for value in values]
        assert writer.write(pa.Table.from_pylist(rows, RAW)) == []
    return writer.close()


def batch(number):
    return Transaction({"app": number}, {"app": number - 1 if number else None})


def values(cluster):
    return [record.value.decode() for record in cluster.sent]


def test_records_are_sent_in_the_order_of_tasks_and_of_their_rows(cluster):
    driver = opened()
    second, first = written(driver, "b", "de"), written(driver, "a", "a", "bc")
    done = driver.commit([*second, *reversed(first)], batch(0), 0)
    assert (done.is_new, done.rows, values(cluster)) == (True, 5, list("abcde"))
    assert cluster.positions == {"app": 0}


def test_a_record_is_sent_as_the_task_made_it(cluster):
    columns = [("value", pa.binary()), ("_topic", pa.string())]
    columns += [("_partition", pa.int32()), ("_offset", pa.int64())]
    rows = [{"value": b"\xff", "_topic": "views", "_partition": 3, "_offset": 2**40}]
    driver = opened()
    writer = driver.writers("a")
    writer.write(pa.Table.from_pylist(rows, pa.schema(columns)))
    driver.commit(writer.close(), batch(0), 0)
    [record] = cluster.sent
    assert (record.key, record.value, record.partition) == (None, b"\xff", -1)
    assert list(record.headers) == [("origin", b"views/3:1099511627776")]


def test_a_row_that_is_too_large_is_rejected_by_the_task(cluster):
    writer = opened().writers("a")
    rows = [{"key": "k", "value": value} for value in ("a", "x" * 2000, "b")]
    rejected = writer.write(pa.Table.from_pylist(rows, RAW))
    assert [(row.index, row.reason) for row in rejected] == [(1, "rejected-by-kafka")]


def test_a_producer_stays_and_positions_are_read_once_while_nothing_fails(cluster):
    driver = opened()
    for number in range(3):
        driver.commit(written(driver, "a", str(number)), batch(number), 0)
    assert (cluster.producers, cluster.reads, values(cluster)) == (1, 1, ["0", "1", "2"])


def test_a_batch_that_positions_say_is_there_is_not_sent(cluster):
    driver = opened()
    driver.commit(written(driver, "a", "x"), batch(0), 0)
    repeated = opened()
    done = repeated.commit(written(repeated, "a", "x"), batch(0), 0)
    assert (done.is_new, done.rows, values(cluster)) == (False, 1, ["x"])


def test_a_driver_that_is_behind_sends_nothing(cluster):
    cluster.positions["app"] = 7
    with pytest.raises(SinkError, match="another driver has recorded other positions"):
        opened().commit([], batch(2), 0)
    assert cluster.sent == []


def test_a_fenced_driver_reads_the_positions_again_and_sends_once_more(cluster):
    driver = opened()
    cluster.failures = [(TransactionFencedError("fenced"), False)]
    assert driver.commit(written(driver, "a", "x"), batch(0), 0).is_new
    assert (cluster.producers, cluster.reads, values(cluster)) == (2, 2, ["x"])


def test_a_fenced_driver_whose_batch_another_one_has_sent_sends_nothing(cluster):
    """Also its own, where the answer to its commit was lost before it was fenced."""
    driver = opened()
    cluster.failures = [(TransactionFencedError("fenced"), True)]
    assert not driver.commit(written(driver, "a", "x"), batch(0), 0).is_new
    assert values(cluster) == ["x"]


def test_a_driver_that_is_fenced_twice_fails(cluster):
    driver = opened()
    cluster.failures = [(TransactionFencedError("fenced"), False)] * 2
    with pytest.raises(SinkError, match="another run of this pipeline writes"):
        driver.commit(written(driver, "a", "x"), batch(0), 0)
    assert (cluster.sent, cluster.open_producers) == ([], 0)


@pytest.mark.parametrize("lands", [False, True])
def test_after_an_unknown_outcome_positions_say_what_it_was(cluster, lands):
    driver = opened()
    cluster.failures = [(TransactionUnsettledError("no answer"), lands)]
    with pytest.raises(SinkUnavailableError, match="no answer"):
        driver.commit(written(driver, "a", "x"), batch(0), 0)
    assert cluster.open_producers == 0
    done = driver.commit(written(driver, "a", "x"), batch(0), 0)
    assert (done.is_new, values(cluster)) == (not lands, ["x"])


def test_after_a_lost_connection_the_next_batch_has_a_new_producer(cluster):
    """A request for the end of a transaction may be on its way twice."""
    driver = opened()
    driver.commit(written(driver, "a", "x"), batch(0), 0)
    cluster.is_lost = True
    driver.commit(written(driver, "a", "y"), batch(1), 0)
    driver.commit(written(driver, "a", "z"), batch(2), 0)
    assert (cluster.producers, cluster.open_producers, cluster.reads) == (2, 1, 2)
    assert values(cluster) == ["x", "y", "z"]


def test_a_reprocessing_fences_no_run_of_the_pipeline(cluster):
    opened()
    assert cluster.transactional_id == "headrace.raw.p"
    SINK.open_to_reprocess(SinkContext("p", "", {}), RAW, None)
    assert cluster.transactional_id == "headrace.raw.p.reprocess"


def test_a_driver_can_be_closed_after_a_failure(cluster):
    driver = opened()
    driver.close(0.0)
    driver.close(0.0)
    assert cluster.open_producers == 0


def test_only_two_guarantees_can_be_declared():
    rows = DeclaredRows(None, None)
    assert list(SINK.faults(rows)) == []
    [fault] = replace(SINK, guarantee=Guarantee.EFFECTIVELY_ONCE).faults(rows)
    assert "Kafka.guarantee is" in fault.message
    assert "EXACTLY_ONCE" in fault.remedy


def test_at_least_once_is_the_default_and_records_no_positions():
    context = SinkContext("p", "", {})
    assert Kafka(TOPIC).guarantee is Guarantee.AT_LEAST_ONCE
    assert Kafka(TOPIC).position_store(context) is None
    assert SINK.position_store(context).uri == "topic raw.positions"
