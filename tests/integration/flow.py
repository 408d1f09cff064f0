"""A small project on the shared broker: topics, events, runs in this process, its lake."""

import json
import threading
import time
import uuid
from collections import Counter
from pathlib import Path

import confluent_kafka
from tests.kafka_topics import make_topic
from tests.waiting import FLUSH_SECONDS, LIMIT_SECONDS

from headrace import EpochMillis, Lake, Pipeline, Topic
from headrace.kafka.client.clients import connected_producer
from headrace.kafka.client.offsets import group_offsets
from headrace.kafka.dead_letters.letters import scan
from headrace.kafka.read.cluster import KafkaCluster
from headrace.model import Start, TopicPartition
from headrace.pipelines.run.pipeline_run import Deployment
from headrace.pipelines.run.runner import Driver
from headrace.pipelines.start.checkpoint import CheckpointFolder
from headrace.pipelines.start.resets import Resets
from headrace.settings.model import RestartSettings, Settings
from headrace.sinks.api import SinkContext
from headrace.sinks.lake.delta.table import read_table

NOW_MS = int(time.time() * 1000)


class Click:
    event_id: str
    event_time: EpochMillis
    category: str
    n: int
    price: float | None


def click(n: int, /, **changes) -> bytes:
    event = {
        "event_id": f"e{n}",
        "event_time": NOW_MS - 3_600_000 + n,
        "category": f"c{n % 3}",
        "n": n,
        "price": n / 4,
    }
    return json.dumps(event | changes).encode()


class Flow:
    def __init__(self, broker, spark, folder: Path, partitions=2, **topic):
        self.broker, self.spark, self.folder = broker, spark, folder
        self.client = {
            "bootstrap.servers": broker.bootstrap_servers,
            "partitioner": "murmur2_random",
        }
        self.more_settings = {}
        self.name = f"clicks-{uuid.uuid4().hex[:8]}"
        self.topic = Topic(
            self.name,
            event=Click,
            key="event_id",
            event_time="event_time",
            partitions=partitions,
            **topic,
        )
        self.create(self.name, partitions)
        self.create(self.topic.dead_letters, 1)
        self.lake = str(folder / "lake")
        self.sinks = {}

    def create(self, topic, partitions):
        make_topic(self.client, topic, partitions, config={"max.message.bytes": "2000000"})

    def send(self, values, partition=None, topic=None, keys=None):
        sender = connected_producer({**self.client, "message.max.bytes": "2000000"})
        for index, value in enumerate(values):
            where = {} if partition is None else {"partition": partition}
            key = keys[index] if keys else str(index).encode()
            sender.produce(topic or self.name, value, key=key, **where)
            sender.poll(0)
        assert sender.flush(FLUSH_SECONDS) == 0

    def pipeline(self, name="fused", **changes):
        settings = {
            "source": self.topic,
            "sink": Lake(name, partition_by=("day", "hour", "category")),
        }
        return Pipeline(name, **settings | changes)

    def stepped(self, name="stepped", **changes):
        return self.pipeline(name, steps=[with_double], **changes)

    def settings(self, **changes):
        values = {
            "root": self.folder,
            "name": "flow",
            "modules": (),
            "lake": self.lake,
            "sinks": self.sinks,
            "restart": RestartSettings(budget=2, first_delay_seconds=0.2),
        }
        return Settings(**values | changes)

    def run(self, *pipelines, once=True, observe=None, stop=None):
        deployment = Deployment(self.broker.bootstrap_servers, self.lake, "local[2]", {})
        return Driver(self.spark, self.settings(**self.more_settings), deployment).run(
            pipelines,
            once=once,
            observe=observe or (lambda _: None),
            stop=stop or threading.Event(),
        )

    def rows(self, table="fused"):
        return read_table(f"{self.lake}/{table}").to_pylist()

    def ids(self, table="fused"):
        return Counter(row["event_id"] for row in self.rows(table))

    def dead(self, topic=None):
        return list(scan(self.client, topic or self.name))

    def committed(self, pipeline="fused"):
        partitions = [TopicPartition(self.name, p) for p in range(self.topic.partitions)]
        found = group_offsets(self.client, f"headrace.{pipeline}", partitions)
        return {one.partition: at for one, at in found.items()}

    def latest(self):
        reader = confluent_kafka.Consumer({**self.client, "group.id": "latest"})
        marks = {}
        for p in range(self.topic.partitions):
            one = confluent_kafka.TopicPartition(self.name, p)
            marks[p] = reader.get_watermark_offsets(one, timeout=LIMIT_SECONDS)[1]
        reader.close()
        return marks

    def reset(self, pipeline, to, *, accept_loss=False):
        settings = self.sinks.get(pipeline.sink.kind, {})
        context = SinkContext(pipeline.name, self.lake, self.client, settings)
        positions = pipeline.sink.position_store(context)
        folder = CheckpointFolder(self.lake, pipeline.name)
        resets = Resets(pipeline, folder, positions, KafkaCluster(self.client))
        if to == "table":
            return resets.to_table(accept_loss=accept_loss)
        return resets.to_start(Start(to))

    def checkpoint(self, pipeline="fused", number=1):
        return Path(self.lake) / "_headrace" / "checkpoints" / pipeline / str(number)

    def forget_newest_commit(self, pipeline="fused"):
        """As if the driver had died between the sink's return and Spark's commit."""
        commits = self.checkpoint(pipeline) / "commits"
        newest = max(int(path.name) for path in commits.glob("[0-9]*"))
        (commits / str(newest)).unlink()
        (commits / f".{newest}.crc").unlink(missing_ok=True)


def with_double(rows):
    from pyspark.sql import functions as F  # noqa: N812

    return rows.withColumn("double", F.col("n") * 2)
