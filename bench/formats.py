"""What it costs to decode an event by the format of its topic: record values to checked columns.

Values are in memory, and one thread calls the decoder that a read task of the fused path calls, so
no broker, no Spark and no file is measured. ``json-flat`` are the events of the other benchmarks.
``json-nested`` are the same fields in classes, a list and a map. ``avro-flat`` and
``protobuf-flat`` are those of ``json-flat`` in Confluent's wire format. Polars (on all cores) and
fastavro read the same values without checking them.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import fastavro
import polars as pl
import pyarrow as pa
from rich.console import Console

from bench.command import exit_code, in_turn, show
from bench.events import Impression, events
from bench.results import Row, row
from headrace import EpochMillis, Json
from headrace.events.avro.values import AvroWriter, avro_schema
from headrace.events.protobuf.writing import ProtobufWriter, protobuf_text
from headrace.model import RegisteredSchema, event_schema
from headrace.pipelines.source.decode import Decoder, decoder_for
from headrace.pipelines.source.decode.avro import AvroDecoder
from headrace.pipelines.source.decode.checks import EventTimeBounds, RowChecks
from headrace.pipelines.source.decode.protobuf import ProtobufDecoder

BENCHMARK = "formats"
EVENTS = 200_000
QUICK_EVENTS = 20_000
ROUNDS = 5
CHUNK_RECORDS = 50_000
_UNITS = {"messages_per_second": "messages/s", "cpu_seconds_per_million": "s"}
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


Decode = Callable[[list[bytes]], object]
"""Turns a chunk of record values into columns, or raises ValueError."""


def decoding(decoder: Decoder) -> Decode:
    """A decoder of headrace with the checks of the source behind it."""

    def decode(values: list[bytes]) -> object:
        decoded = _CHECKS.applied(decoder.decode(values), len(values))
        if decoded.rejected:
            raise ValueError(next(iter(decoded.rejected.values())))
        return decoded.rows

    return decode


def polars_lines(values: list[bytes]) -> object:
    """What a program without checks would do with JSON."""
    return pl.read_ndjson(io.BytesIO(b"\n".join(values)))


def fastavro_rows(values: list[bytes]) -> object:
    """What a program without checks would do with Avro."""
    schema = fastavro.parse_schema(avro_schema(event_schema(Impression)))
    read = fastavro.schemaless_reader
    return pa.Table.from_pylist([read(io.BytesIO(value[5:]), schema, None) for value in values])


def systems(count: int) -> dict[str, tuple[Decode, list[bytes]]]:
    """By name: what decodes, and the values that it decodes."""
    flat = list(events(count))
    schema, deep = event_schema(Impression), event_schema(NestedImpression)
    deep_values = [nested(value) for value in flat]
    avro = [AvroWriter(schema, 1)(value) for value in flat]
    deep_avro = [AvroWriter(deep, 2)(value) for value in deep_values]
    lookup = {1: avro_schema(schema), 2: avro_schema(deep)}.get
    registered = RegisteredSchema("PROTOBUF", protobuf_text(schema), id=1)
    protobuf = [*map(ProtobufWriter(schema, registered), flat)]
    return {
        "json-flat": (decoding(decoder_for(Json(), schema)), flat),
        "json-nested": (decoding(decoder_for(Json(), deep)), deep_values),
        "avro-flat": (decoding(AvroDecoder(schema, lookup)), avro),
        "avro-nested": (decoding(AvroDecoder(deep, lookup)), deep_avro),
        "protobuf-flat": (decoding(ProtobufDecoder(schema, {1: registered}.get)), protobuf),
        "json-flat-polars": (polars_lines, flat),
        "avro-flat-fastavro": (fastavro_rows, avro),
    }


def measured(decode: Decode, values: list[bytes]) -> dict[str, float]:
    """The metrics of one round."""
    wall, cpu = time.perf_counter(), time.process_time()
    for start in range(0, len(values), CHUNK_RECORDS):
        decode(values[start : start + CHUNK_RECORDS])
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    millions = len(values) / 1e6
    return {"messages_per_second": len(values) / wall, "cpu_seconds_per_million": cpu / millions}


def run(count: int, rounds: int, console: Console) -> list[Row]:
    """The whole benchmark; every system has decoded once before the first round."""
    subjects = systems(count)
    took: dict[tuple[str, str], list[float]] = {}
    for decode, values in subjects.values():
        decode(values[:CHUNK_RECORDS])
    for number, name in in_turn(list(subjects), rounds):
        metrics = measured(*subjects[name])
        for metric, value in metrics.items():
            took.setdefault((name, metric), []).append(value)
        shown = f"{metrics['cpu_seconds_per_million']:.2f} s of CPU for a million events"
        console.print(f"round {number + 1} of {rounds}, {name}: {shown}")
    return [
        row(BENCHMARK, name, metric, _UNITS[metric], values)
        for (name, metric), values in took.items()
    ]


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
