"""Bytes on disk that a join needs for each event that it keeps.

Events of :mod:`bench.events` go through one partition of a join, batch by batch, without Kafka and
Spark. Printed, for each event: bytes of its value, of all files in the checkpoint's folder, and of
the index on this machine: ``.venv/bin/python -m bench.join_state --events 1000000``.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from datetime import timedelta
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from bench.events import events
from headrace.pipelines.join.declaration import Match
from headrace.pipelines.join.events import KeyedEvent, KeyedEvents
from headrace.pipelines.join.index.earlier_index import EarlierIndex
from headrace.pipelines.join.index.slices import slice_length_us
from headrace.pipelines.join.index.state import StateFolder
from headrace.pipelines.join.matching import JoinWindow
from headrace.pipelines.join.offsets import JoinPosition
from headrace.pipelines.join.partition import JoinPartition


def main() -> None:
    """Prints the figures of one run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=50_000, help="events of a batch")
    parser.add_argument("--within", type=float, default=24, help="Join.within in hours")
    parser.add_argument("--match", type=Match, default=Match.ID, choices=list(Match))
    options = parser.parse_args()
    window = JoinWindow(
        timedelta(hours=options.within) // timedelta(microseconds=1),
        timedelta(minutes=10) // timedelta(microseconds=1),
    )
    with TemporaryDirectory() as folder:
        state, index = Path(folder, "state"), Path(folder, "index")
        value_bytes = _keep(state, index, window, options.match, _batches(options))
        for name, size in (
            ("value", value_bytes),
            ("checkpoint", _disk(state)),
            ("index", _disk(index)),
        ):
            print(f"{name}: {size / options.events:.1f} bytes an event")


def _keep(
    state: Path, index: Path, window: JoinWindow, match: Match, batches: Iterator[list[KeyedEvent]]
) -> int:
    """Gives a join all batches, and returns how many bytes their values have."""
    at, value_bytes = JoinPosition(0, 0, 0, 0), 0
    earlier = EarlierIndex(index, slice_length_us(window.within_us))
    partition = JoinPartition(StateFolder(str(state), at, "bench", {}), earlier, window, match)
    for batch in batches:
        end = JoinPosition(batch[-1].offset + 1, 0, batch[-1].time_us, 0)
        partition.join(at, end, KeyedEvents.of(batch), [])
        at, value_bytes = end, value_bytes + sum(len(event.value) for event in batch)
    partition.join(at, at, KeyedEvents.of([]), [])  # deletes what the last batch no longer needs
    return value_bytes


def _batches(options: argparse.Namespace) -> Iterator[list[KeyedEvent]]:
    decoder = msgspec.json.Decoder(dict)
    numbered = enumerate(events(options.events))
    while chunk := list(islice(numbered, options.batch)):
        decoded = ((offset, value, decoder.decode(value)) for offset, value in chunk)
        yield [
            KeyedEvent(fields["event_id"].encode(), fields["event_time"] * 1000, offset, value)
            for offset, value, fields in decoded
        ]


def _disk(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


if __name__ == "__main__":
    main()
