"""One Quix Streams application that joins. Runs in an environment of its own, without headrace.

Its argument is JSON: the broker, the consumer group, the three topics, and the times in ms.
"""

from __future__ import annotations

import json
import sys

from quixstreams import Application


def event_time(value: dict[str, int], *_: object) -> int:
    """Of an event, instead of the record's time."""
    return value["event_time"]


def merged(click: dict[str, object], impression: dict[str, object] | None) -> dict[str, object]:
    """A click with its impression in a field."""
    return {**click, "impression": impression}


def main(names: dict[str, str], *, within_ms: int, wait_ms: int, commit_seconds: float) -> None:
    application = Application(
        broker_address=names["bootstrap"],
        consumer_group=names["group"],
        auto_offset_reset="earliest",
        commit_interval=commit_seconds,
        state_dir=names["state"],
        loglevel="WARNING",
    )
    clicks, impressions = (
        application.dataframe(
            application.topic(
                names[side], value_deserializer="json", timestamp_extractor=event_time
            )
        )
        for side in ("clicks", "impressions")
    )
    pairs = clicks.join_interval(
        impressions,
        how="left",
        on_merge=merged,
        grace_ms=within_ms + wait_ms,
        backward_ms=within_ms,
        forward_ms=wait_ms,
    )
    pairs.to_topic(application.topic(names["out"], value_serializer="json"))
    application.run()


if __name__ == "__main__":
    arguments = json.loads(sys.argv[1])
    main(arguments["names"], **arguments["times"])
