"""The function of docs/ledger.md that finds until when a table is complete."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake

ROWS = pl.DataFrame({"n": [1]})
FIRST, SECOND = "2026-11-21T18:00:00+00:00", "2026-11-21T19:00:00+00:00"


class Lake:
    """A table that a pipeline writes, and others change."""

    def __init__(self, uri: str, complete_until: Callable[[str], str | None]) -> None:
        self.uri, self._complete_until = uri, complete_until

    def commit(self, **said: object) -> None:
        meta = CommitProperties(custom_metadata={"headrace": {"batch": 1} | said})
        write_deltalake(self.uri, ROWS, mode="append", commit_properties=meta)

    @property
    def table(self) -> DeltaTable:
        return DeltaTable(self.uri)

    @property
    def complete_until(self) -> str | None:
        return self._complete_until(self.uri)


@pytest.fixture
def lake(tmp_path, monkeypatch, blocks) -> Lake:
    [text] = [
        block.text
        for block in blocks("python")
        if block.page == "docs/ledger.md" and "def complete_until" in block.text
    ]
    monkeypatch.chdir(tmp_path)
    write_deltalake("lake/clicks", ROWS)  # what the example prints of
    names: dict[str, Callable[[str], str | None]] = {}
    exec(text, names)
    return Lake(str(tmp_path / "table"), names["complete_until"])


def test_the_newest_commit_that_says_it_counts(lake):
    lake.commit()
    assert lake.complete_until is None
    lake.commit(complete_until=FIRST)
    lake.commit(complete_until=SECOND)
    lake.commit()
    lake.table.optimize.compact()
    assert lake.complete_until == SECOND


def test_the_first_commit_after_a_reset_takes_it_back(lake):
    lake.commit(complete_until=SECOND)
    lake.commit(complete_until=None)
    lake.commit()
    assert lake.complete_until is None
    lake.commit(complete_until=FIRST)
    assert lake.complete_until == FIRST


@pytest.mark.parametrize(
    "change",
    [
        lambda lake: lake.table.restore(1),
        lambda lake: lake.table.delete(),
        lambda lake: write_deltalake(lake.uri, ROWS, mode="overwrite"),
    ],
    ids=["restore", "delete", "overwrite"],
)
def test_nothing_is_known_behind_a_commit_that_took_rows_away(lake, change):
    lake.commit()
    lake.commit(complete_until=FIRST)
    lake.commit(complete_until=SECOND)
    change(lake)
    assert lake.complete_until is None
    lake.commit()
    assert lake.complete_until is None
