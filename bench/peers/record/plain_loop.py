"""One consumer in a loop: a record is stored for the next commit once its work is done."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, KafkaException, Message, Producer

from bench.peers.record.job import COMMIT_SECONDS, SEND, Job, this


def main(job: Job) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": job.bootstrap,
            "group.id": job.group,
            "auto.offset.reset": "earliest",
            "enable.auto.offset.store": False,
            "auto.commit.interval.ms": int(COMMIT_SECONDS * 1000),
        }
    )
    consumer.subscribe([job.topic])
    if job.kind == SEND:
        copy(job, consumer)
    else:
        work_through(job, consumer)


def copy(job: Job, consumer: Consumer) -> None:
    """Sends each record on; what is flushed is committed, every quarter of a second."""
    producer = Producer({"bootstrap.servers": job.bootstrap, "enable.idempotence": True})
    last: dict[int, Message] = {}
    flush_at = time.monotonic() + COMMIT_SECONDS
    while True:
        message = consumer.poll(COMMIT_SECONDS)
        if message is not None:
            if message.error():
                raise KafkaException(message.error())
            producer.produce(job.out, message.value())
            producer.poll(0)
            last[message.partition()] = message
        if time.monotonic() >= flush_at:
            producer.flush()
            for one in last.values():
                consumer.commit(one, asynchronous=True)
            last.clear()
            flush_at = time.monotonic() + COMMIT_SECONDS


def work_through(job: Job, consumer: Consumer) -> None:
    work = job.work
    while True:
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error():
            raise KafkaException(message.error())
        work()
        consumer.store_offsets(message)


if __name__ == "__main__":
    main(this())
