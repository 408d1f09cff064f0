"""What it costs to decode an event by the format of its topic: record values to checked columns.

Values are in memory, on one thread, so no broker, no Spark and no file is measured. ``json-flat``
are the events of the other benchmarks. ``json-nested`` are the same fields in classes, a list and a
map. ``avro-flat`` are those of ``json-flat`` in Confluent's wire format.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from bench.command import exit_code, in_turn, show
from bench.events import Impression, events
from bench.results import Row, row
from headrace import EpochMillis, Json
from headrace.events.avro import AvroWriter, avro_schema
from headrace.model import event_schema
from headrace.pipelines.source.decode import Decoder, decoder_for
from headrace.pipelines.source.decode.avro import AvroDecoder
from headrace.pipelines.source.decode.checks import EventTimeBounds, RowChecks

BENCHMARK = "formats"
EVENTS = 200_000
QUICK_EVENTS = 20_000
ROUNDS = 5
CHUNK_RECORDS = 50_000
_CHECKS = RowChecks(EventTimeBounds("event_time", 0, 2**53), ("category",))


@dataclass
class Item:
    id: int
    category: str
    position: int


@dataclass
class User:
    group: str
    segment: str


@dataclass
class NestedImpression:
    event_id: str
    event_time: EpochMillis
    category: str
    campaign: str
    user: User
    items: list[Item]
    scores: dict[str, float]
    clicked: bool


class OneSchema:
    """A registry that knows the schema of the benchmark's events."""

    def avro_schema(self, schema_id: int) -> Any:  # noqa: ARG002
        return avro_schema(event_schema(Impression))


def nested(value: bytes) -> bytes:
    """The fields of an impression, nested."""
    flat = json.loads(value)
    item = {"id": flat["item_id"], "category": flat["category"], "position": flat["position"]}
    document = {name: flat[name] for name in ("event_id", "event_time", "category", "campaign")}
    document |= {
        "user": {"group": flat["user_group"], "segment": flat["user_segment"]},
        "items": [item],
        "scores": {"propensity": flat["propensity"]},
        "clicked": flat["clicked"],
    }
    return json.dumps(document).encode()


def systems(count: int) -> dict[str, tuple[Decoder, list[bytes]]]:
    """By name: a decoder and the values that it decodes."""
    flat = list(events(count))
    schema = event_schema(Impression)
    writer = AvroWriter(schema, 1)
    return {
        "json-flat": (decoder_for(Json(), schema), flat),
        "json-nested": (
            decoder_for(Json(), event_schema(NestedImpression)),
            [nested(value) for value in flat],
        ),
        "avro-flat": (
            AvroDecoder(schema, OneSchema().avro_schema),
            [writer(value) for value in flat],
        ),
    }


def microseconds(decoder: Decoder, values: list[bytes]) -> float:
    """Of one core for an event."""
    began = time.process_time()
    for start in range(0, len(values), CHUNK_RECORDS):
        chunk = values[start : start + CHUNK_RECORDS]
        decoded = _CHECKS.applied(decoder.decode(chunk), len(chunk))
        if decoded.rejected:
            raise ValueError(next(iter(decoded.rejected.values())))
    return (time.process_time() - began) * 1e6 / len(values)


def run(count: int, rounds: int, console: Console) -> list[Row]:
    """The whole benchmark."""
    subjects = systems(count)
    took: dict[str, list[float]] = {name: [] for name in subjects}
    for number, name in in_turn(list(subjects), rounds):
        took[name].append(microseconds(*subjects[name]))
        console.print(f"round {number + 1} of {rounds}, {name}: {took[name][-1]:.2f} us")
    return [row(BENCHMARK, name, "cpu_us_per_event", "us", times) for name, times in took.items()]


def main(given: Sequence[str]) -> int:
    """Runs, shows a table, keeps the results unless it was a quick run."""
    parser = argparse.ArgumentParser(prog="python -m bench.formats", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few events, one round; not kept")
    quick = parser.parse_args(given).quick
    count, rounds = (QUICK_EVENTS, 1) if quick else (EVENTS, ROUNDS)

    def work(console: Console) -> int:
        rows = run(count, rounds, console)
        settings = {"work": f"{count} events a round, on one thread", "rounds": rounds}
        show(console, BENCHMARK, rows, None if quick else settings)
        return 0

    return exit_code(work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
