"""The example of "Iceberg tables" reads what a pipeline has written to the default folder."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from headrace import Iceberg, Lake
from headrace.sinks.api import SinkContext, Transaction

_PAGE = "docs/iceberg.md"


@pytest.fixture
def example(blocks: Callable[[str], list]) -> str:
    return next(
        block.text
        for block in blocks("python")
        if block.page == _PAGE and "SqlCatalog" in block.text
    )


def test_pyiceberg_reads_the_rows_by_time_and_country(example, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    sink = Lake("page_views", partition_by=["hour", "country"], format=Iceberg())
    context = SinkContext("views", str(Path(".headrace/lake").resolve()), {}, event_time="at")
    hours = [datetime(2026, 5, 1, hour, tzinfo=UTC) for hour in (8, 9, 14)]
    kinds = [("at", pa.timestamp("us", "UTC")), ("country", pa.string())]
    rows = pa.table([hours * 2, ["PL"] * 3 + ["DE"] * 3], schema=pa.schema(kinds))
    driver = sink.open(context, rows.schema)
    writer = driver.writers("a" * 32)
    writer.write(rows)
    driver.commit(writer.close(), Transaction({"views/0": 6}, {"views/0": None}), 0)
    driver.close(0.0)
    exec(example, {})
    assert capsys.readouterr().out == '2 views, from 2 files\n{"views": {"0": 6}}\n'
