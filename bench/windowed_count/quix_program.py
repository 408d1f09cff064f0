"""One Quix Streams application that counts. Runs in an environment of its own, without headrace.

Its argument is JSON: names of the broker, the consumer group and the topics, times in ms, and
settings of the producer.
"""

from __future__ import annotations

import json
import sys

from quixstreams import Application


def event_time(value: dict[str, int], *_: object) -> int:
    """Of an event, instead of the record's time."""
    return value["event_time"]


def counted(window: dict[str, int], key: bytes, *_: object) -> dict[str, object]:
    """The result of a window, with the key."""
    return {"advertiser": key.decode(), "begin_ms": window["start"], "count": window["value"]}


def main(
    names: dict[str, str], *, window_ms: int, grace_ms: int, producer: dict[str, object]
) -> None:
    application = Application(
        broker_address=names["bootstrap"],
        consumer_group=names["group"],
        auto_offset_reset="earliest",
        state_dir=names["state"],
        producer_extra_config=producer,
        loglevel="WARNING",
    )
    events = application.topic(
        names["events"],
        key_deserializer="bytes",
        value_deserializer="json",
        timestamp_extractor=event_time,
    )
    windows = application.dataframe(events).tumbling_window(window_ms, grace_ms=grace_ms)
    counts = windows.count().final().apply(counted, metadata=True)
    counts.to_topic(application.topic(names["counts"], value_serializer="json"))
    application.run()


if __name__ == "__main__":
    arguments = json.loads(sys.argv[1])
    main(arguments.pop("names"), **arguments)
