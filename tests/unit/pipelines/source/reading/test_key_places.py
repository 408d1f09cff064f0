import zlib
from dataclasses import replace

import confluent_kafka
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.contracts.source import Numbered, drained, event, spec
from tests.waiting import FLUSH_SECONDS

from headrace import ByField, Lake, Pipeline, Postgres, Topic, WriteMode
from headrace.errors import KeyMovedError
from headrace.model.partitioning import partition_of_key
from headrace.pipelines.rows import RunContext, source_spec
from headrace.pipelines.source.planning.planner import Planner
from headrace.pipelines.source.reading.key_places import murmur2_hashes
from headrace.pipelines.source.reading.reader import TaskReader
from headrace.testing.memory import MemoryCluster

KEYED = Topic("numbers", event=Numbered, key="name")
UPSERT = Postgres("t", WriteMode.UPSERT, ("name",))
KEYS = [f"x{n}".encode() for n in range(60)]


def of_java(key, partitions):
    return partition_of_key(key, partitions)


def of_librdkafka(key, partitions):
    return zlib.crc32(key) % partitions


def of_go(key, partitions):
    """As Sarama does it: FNV-1a as a signed number, whose remainder loses its sign."""
    hash_ = 0x811C9DC5
    for byte in key:
        hash_ = (hash_ ^ byte) * 0x01000193 % 2**32
    return abs(hash_ - 2**32 if hash_ >= 2**31 else hash_) % partitions


class Site:
    """A topic, and the first batch of a pipeline that begins at its earliest record."""

    def __init__(self, folder, partitions=4):
        self.folder, self.partitions = folder, partitions
        self.cluster = MemoryCluster()
        self.cluster.create("numbers", partitions)

    def send(self, place=of_java, keys=KEYS):
        for n, key in enumerate(keys):
            self.cluster.append("numbers", place(key, self.partitions), event(n), key)

    def add_partitions(self, partitions):
        self.cluster.add_partitions("numbers", partitions)
        self.partitions = partitions

    def rows(self, **changes):
        settings = {"needs_key_places": True} | changes
        found = spec(self.cluster, "numbers", self.folder, **settings)
        planner = Planner(found)
        start = planner.initial_offset()
        work = planner.tasks(start, drained(planner, start))
        return sum(table.num_rows for table in TaskReader(found, work).tables())


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path)


@pytest.mark.parametrize("place", [of_java, of_librdkafka, of_go])
def test_keys_that_moved_before_the_pipeline_began_are_refused(site, place):
    site.send(place)
    site.add_partitions(6)
    site.send(place)
    with pytest.raises(KeyMovedError, match="newest_by") as raised:
        site.rows()
    assert raised.value.partitions == 6


def test_producers_that_choose_partitions_differently_are_refused(site):
    site.send(of_java)
    site.send(of_librdkafka)
    with pytest.raises(KeyMovedError, match="murmur2_random"):
        site.rows()


@pytest.mark.parametrize("place", [of_java, of_librdkafka, of_go, lambda *_: 0])
def test_keys_that_have_one_partition_each_are_read(site, place):
    site.send(place)
    site.send(place)
    assert site.rows() == 120


def test_records_without_a_key_are_read(site):
    site.send(lambda *_: 1, keys=[None])
    assert site.rows() == 1


def test_a_pipeline_that_needs_no_places_reads_keys_that_moved(site):
    site.send()
    site.add_partitions(6)
    site.send()
    assert site.rows(needs_key_places=False) == 120


@pytest.mark.parametrize(
    ("place", "settings"),
    [(of_java, {"partitioner": "murmur2_random"}), (of_librdkafka, {})],
)
def test_places_are_those_that_the_client_library_chooses(place, settings):
    mock = {"bootstrap.servers": "-", "test.mock.num.brokers": "1"}
    sender = confluent_kafka.Producer({**mock, **settings})
    places = {}
    for key in KEYS:
        sender.produce(
            "t", key=key, on_delivery=lambda _, sent: places.update({sent.key(): sent.partition()})
        )
    assert sender.flush(FLUSH_SECONDS) == 0
    partitions = len(sender.list_topics("t").topics["t"].partitions)
    assert places == {key: place(key, partitions) for key in KEYS}


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=30))
def test_the_hashes_of_many_keys_are_those_of_each(keys):
    places = (murmur2_hashes(keys) % 12).tolist()
    assert places == [partition_of_key(key, 12) for key in keys]


@pytest.mark.parametrize(
    ("sink", "topic", "expected"),
    [
        (UPSERT, KEYED, True),
        (replace(UPSERT, newest_by="n"), KEYED, False),
        (Postgres("t"), KEYED, False),
        (Lake("t"), KEYED, False),
        (UPSERT, replace(KEYED, partitioning=ByField("name")), False),
        (UPSERT, replace(KEYED, key=None), False),
    ],
)
def test_places_are_needed_where_the_last_record_of_a_key_counts(tmp_path, sink, topic, expected):
    pipeline = Pipeline("p", topic, sink)
    context = RunContext(str(tmp_path), {"bootstrap.servers": "none:1"}, {}, tmp_path)
    found = source_spec(pipeline, *pipeline.sources, context, "", None)
    assert found.planning.needs_key_places is expected
