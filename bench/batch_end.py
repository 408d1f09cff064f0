"""What the end of a batch costs in the log of a table, by how many files the table has.

A table of so many live files is made by commits without data: files are named, not written. Then
batches of ten files each end in it, as pipelines do it: what is committed is looked up, the files
are committed. A commit through delta-rs, which brings the list of all files up to date, is
measured in the same table. Milliseconds, of a local disk.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable
from deltalake import Transaction as AppTransaction
from deltalake.transaction import AddAction
from rich.console import Console

from bench.command import exit_code, show
from bench.results import Row, row
from headrace import Lake
from headrace.sinks.api import Transaction
from headrace.sinks.lake.delta.table import LakeTable
from headrace.sinks.lake.files.data_file import WriteSpec, WrittenFile, delta_stats

BENCHMARK = "batch-end"
SYSTEMS = ("headrace", "through-delta-rs")
FILES = (1_000, 20_000, 200_000)
QUICK_FILES = (1_000, 20_000)
PARTITIONS = 10_000
FILES_A_COMMIT = 10_000
FILES_A_BATCH = 10
BATCHES = 20
ROUNDS = 3
COLUMNS = pa.schema([("id", pa.int64()), ("category", pa.string())])


def named(count: int) -> list[WrittenFile]:
    """So many data files that are not there."""
    return [
        WrittenFile(
            path=f"category=c{number % PARTITIONS}/part-{uuid.uuid4()}.zstd.parquet",
            size=100_000_000,
            rows=1_000,
            partition_values={"category": f"c{number % PARTITIONS}"},
            stats=delta_stats(1_000, {}),
        )
        for number in range(count)
    ]


class Table:
    """A table of so many files, and batches that end in it."""

    def __init__(self, folder: str, files: int) -> None:
        self._root = f"{folder}/table"
        self._table = LakeTable(WriteSpec(self._root, COLUMNS, Lake("table", ("category",)).layout))
        self._batch_id = 0
        for _ in range(0, files, FILES_A_COMMIT):
            self.end_batch(min(files, FILES_A_COMMIT))
        DeltaTable(self._root).create_checkpoint()

    def end_batch(self, files: int = FILES_A_BATCH) -> None:
        """As the driver ends a batch."""
        before = self._table.versions(["bench"]).get("bench")
        after = {"bench": self._batch_id}
        self._table.commit(named(files), Transaction(after, {"bench": before}))
        self._batch_id += 1

    def delta_rs_commit(self, table: DeltaTable) -> None:
        """What a commit was before the driver kept the end of the log itself."""
        table.update_incremental()
        adds = [
            AddAction(
                file.path,
                file.size,
                file.partition_values,
                time.time_ns() // 10**6,
                True,
                file.stats,
            )
            for file in named(FILES_A_BATCH)
        ]
        transaction = AppTransaction("other", self._batch_id)
        table.create_write_transaction(
            adds,
            "append",
            table.schema(),
            table.metadata().partition_columns,
            commit_properties=CommitProperties(app_transactions=[transaction]),
        )
        self._batch_id += 1

    def measure(self) -> dict[str, float]:
        """Milliseconds of a batch's end, by system."""
        self.end_batch()
        ours = [_milliseconds(self.end_batch) for _ in range(BATCHES)]
        table = DeltaTable(self._root)
        theirs = [_milliseconds(lambda: self.delta_rs_commit(table)) for _ in range(BATCHES)]
        return dict(zip(SYSTEMS, map(statistics.median, (ours, theirs)), strict=True))


def _milliseconds(do: Callable[[], None]) -> float:
    began = time.perf_counter()
    do()
    return (time.perf_counter() - began) * 1000


def run(files: Sequence[int], rounds: int, console: Console) -> list[Row]:
    """The whole benchmark."""
    found: dict[tuple[str, int], list[float]] = {}
    for number in range(rounds):
        for count in files:
            with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
                milliseconds = Table(folder, count).measure()
            told = ", ".join(f"{system} {took:.1f} ms" for system, took in milliseconds.items())
            console.print(f"round {number + 1} of {rounds}, {count:,} files: {told}")
            for system, took in milliseconds.items():
                found.setdefault((system, count), []).append(took)
    return [
        row(BENCHMARK, system, f"ms_at_{count}_files", "ms", took)
        for (system, count), took in found.items()
    ]


def settings(rounds: int) -> dict[str, object]:
    """What the figures were measured with."""
    return {
        "work": f"{BATCHES} batches of {FILES_A_BATCH} files a round",
        "rounds": rounds,
        "partitions_of_the_table": PARTITIONS,
    }


def main(given: Sequence[str]) -> int:
    """Runs, shows a table, keeps the results unless it was a quick run."""
    parser = argparse.ArgumentParser(prog="python -m bench.batch_end", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"default {ROUNDS}")
    parser.add_argument("--quick", action="store_true", help="one round, nothing kept")
    chosen = parser.parse_args(given)
    files, rounds = (QUICK_FILES, 1) if chosen.quick else (FILES, chosen.rounds)

    def work(console: Console) -> int:
        kept = None if chosen.quick else settings(rounds)
        show(console, BENCHMARK, run(files, rounds, console), kept)
        return 0

    return exit_code(work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
