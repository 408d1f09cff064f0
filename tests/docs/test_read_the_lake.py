"""The examples of "Read the lake" read what a table holds, and nothing that lies beside it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import date
from pathlib import Path

import polars as pl
import pytest
from deltalake import write_deltalake

_PAGE = "docs/read-the-lake.md"


@pytest.fixture
def examples(blocks: Callable[[str], list]) -> list[str]:
    """The Python blocks of the page: with polars, with Arrow and pandas."""
    return [block.text for block in blocks("python") if block.page == _PAGE]


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table of three rows, two of them from Poland, with a file that was never committed."""
    table = tmp_path / ".headrace" / "lake" / "page_views"
    rows = pl.DataFrame(
        {"day": [date(2026, 5, 1)] * 3, "country": ["PL", "PL", "DE"], "n": [1, 2, 3]}
    )
    write_deltalake(table, rows, partition_by=["day", "country"])
    committed = next(table.rglob("country=PL/*.parquet"))
    shutil.copy(committed, committed.with_name("never-committed.parquet"))
    monkeypatch.chdir(tmp_path)
    return table


def test_polars_reads_the_rows_that_were_committed(examples, lake, capsys):
    exec(examples[0], {})
    assert "│ 2026-05-01 ┆ 2   │" in capsys.readouterr().out


def test_arrow_and_pandas_read_the_rows_that_were_committed(examples, lake, capsys):
    names: dict[str, pl.DataFrame] = {}
    exec(examples[1], names)
    assert capsys.readouterr().out == "0 3\n"
    assert list(names["frame"]["n"]) == [1, 2]


def test_a_glob_reads_rows_that_were_never_committed(lake):
    assert pl.read_parquet(lake / "**/*.parquet").height == 5
