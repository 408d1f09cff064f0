"""What a commit of `reprocess` makes of a Delta table."""

from datetime import timedelta

import pytest
from deltalake import DeltaTable
from tests.contracts.replacing import ReplacedTable, ReplacingContract, row
from tests.unit.sinks.lake.deletion_vectors import delete_by_vector

from headrace import Delta, Unique
from headrace.errors import SinkError
from headrace.sinks.api import Transaction
from headrace.sinks.lake.delta.log import live_paths
from headrace.sinks.lake.files.folder import TableFolder


class Table(ReplacedTable):
    format = Delta()

    @property
    def root(self):
        return f"{self.context.lake}/clicks"

    def files(self):
        return {uri.removeprefix("file://") for uri in DeltaTable(self.root).file_uris()}


class TestReplacing(ReplacingContract):
    table = Table


def test_files_without_any_of_the_ids_are_not_read_whole(tmp_path, monkeypatch):
    table = Table(tmp_path, places=False)
    table.fill([row(1)], [row(2, late=3)], [row(3)])
    present = live_paths(DeltaTable(table.root))
    read, whole = TableFolder.read, set()

    def noting(folder, path, columns=None, *arguments):
        if columns is None:
            whole.add(path)
        return read(folder, path, columns, *arguments)

    monkeypatch.setattr(TableFolder, "read", noting)
    assert table.replace([row(1), row(3)]) == (0, 0, 2)
    assert len(present) == 3
    assert len(present & whole) == 2


@pytest.mark.parametrize("property_", ["delta.appendOnly", "delta.enableChangeDataFeed"])
def test_tables_whose_rows_may_not_go_only_get_rows(tmp_path, property_):
    table = Table(tmp_path)
    table.fill([row(1), row(2)])
    features = {"raise_if_not_exists": False}
    DeltaTable(table.root).alter.set_table_properties({property_: "true"}, **features)
    with pytest.raises(SinkError, match=property_):
        table.replace([row(1, 5), row(2)])
    assert table.replace([row(1), row(2), row(3)]) == (1, 0, 2)


def test_rows_that_deletion_vectors_took_from_a_unique_table_are_added(tmp_path):
    unique = Unique(by=["id"], within=timedelta(days=1))
    table = Table(tmp_path, places=False, unique=unique)
    rows = [row(offset) for offset in range(4)]
    table.fill(rows)
    delete_by_vector(table.root, lambda stored: stored["id"] in ("e0", "e2"))
    driver, transaction = table.open(), Transaction({"part": 1}, {"part": None})
    without_duplicates = driver.commit(table.written(driver, rows), transaction, 0).pieces
    assert driver.commit(without_duplicates, transaction, 0).figures["rows_added"] == 2
    assert table.content() == table.expected(rows)
    driver.close(0.0)
