"""One consumer in a loop: a record is stored for the next commit once its work is done."""

from __future__ import annotations

from confluent_kafka import Consumer, KafkaException

from bench.peers.record.job import COMMIT_SECONDS, Job, this


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
