"""A table of very many files: the end of a batch neither reads them nor waits for maintenance."""

import statistics
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest
from bench.batch_end import COLUMNS, FILES_A_COMMIT, named
from deltalake import DeltaTable

from headrace import Lake
from headrace.sinks.api import Transaction
from headrace.sinks.lake.delta import log as delta_log
from headrace.sinks.lake.delta.table import LakeTable
from headrace.sinks.lake.files.data_file import WriteSpec
from headrace.sinks.lake.upkeep.maintenance import MaintenanceHold, TableCommit
from headrace.sinks.lake.writer import PartitionedWriter
from headrace.storage import files as storage

BATCHES = 70
BUSY = 10_001  # a partition beyond those of the files that are only named
MAX_BYTES_OF_A_BATCH = 100_000  # a merge may have committed meanwhile: 64 files and more


@pytest.fixture
def reads(monkeypatch):
    """What this thread reads of a table: bytes of its log, and loads of all its files."""
    mine, seen = threading.get_ident(), {"bytes": 0, "loads": 0}
    read_bytes = storage.read_bytes

    def counted(*args):
        content = read_bytes(*args)
        seen["bytes"] += len(content) if threading.get_ident() == mine else 0
        return content

    class Counted(DeltaTable):
        def __init__(self, *args, **options):
            seen["loads"] += threading.get_ident() == mine
            super().__init__(*args, **options)

        def update_incremental(self):
            seen["loads"] += threading.get_ident() == mine
            super().update_incremental()

    monkeypatch.setattr(storage, "read_bytes", counted)
    monkeypatch.setattr(delta_log, "DeltaTable", Counted)
    return seen


def batch(table, number, files):
    before = table.versions(["p"]).get("p")
    assert table.commit(files, Transaction({"p": number}, {"p": before}))
    return TableCommit(table.version(), files)


def written(spec, number):
    rows = [{"id": number, "category": f"c{BUSY}"}]
    writer = PartitionedWriter(spec, "task")
    writer.write(pa.Table.from_pylist(rows, spec.schema))
    return writer.finish()


@pytest.mark.drill
@pytest.mark.timeout(900)
def test_the_end_of_a_batch_reads_no_file_list_however_long_it_is(tmp_path, reads, drill_run):
    files = drill_run.size(short=20_000, long=200_000)
    spec = WriteSpec(str(tmp_path / "table"), COLUMNS, Lake("table", ("category",)).layout)
    for number in range(0, files, FILES_A_COMMIT):
        batch(LakeTable(spec), number, named(FILES_A_COMMIT))
    table, hold = LakeTable(spec), MaintenanceHold(spec)
    hold.committed(batch(table, files, written(spec, 0)))
    milliseconds = []
    for number in range(1, BATCHES):
        reads.update(bytes=0, loads=0)
        data = written(spec, number)
        began = time.perf_counter()
        hold.committed(batch(table, files + number, data))
        milliseconds.append((time.perf_counter() - began) * 1000)
        assert reads["loads"] == 0
        assert reads["bytes"] <= MAX_BYTES_OF_A_BATCH
    hold.release(300.0)
    assert (hold.progress.failures, hold.progress.reason) == (0, "")
    assert hold.progress.files_merged >= 64
    assert list(Path(spec.root, "_delta_log").glob("*.checkpoint.parquet"))
    live = pa.table(DeltaTable(spec.root).get_add_actions())
    assert sum(live["num_records"].to_pylist()) == 1_000 * files + BATCHES
    drill_run.report(files=files, median_ms=round(statistics.median(milliseconds), 1))
