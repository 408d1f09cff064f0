"""One Quix Streams application. Runs in an environment of its own, without headrace."""

from __future__ import annotations

from job import COMMIT_SECONDS, SEND, Job, this  # beside this file
from quixstreams import Application


def main(job: Job) -> None:
    application = Application(
        broker_address=job.bootstrap,
        consumer_group=job.group,
        auto_offset_reset="earliest",
        commit_interval=COMMIT_SECONDS,
        loglevel="WARNING",
        processing_guarantee="exactly-once" if job.is_exactly_once else "at-least-once",
    )
    topic = application.topic(job.topic, value_deserializer="bytes")
    records = application.dataframe(topic)
    if job.kind == SEND:
        records.to_topic(application.topic(job.out, value_serializer="bytes"))
    else:
        work = job.work
        records.update(lambda _: work())
    application.run()


if __name__ == "__main__":
    main(this())
