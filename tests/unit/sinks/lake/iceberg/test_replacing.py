"""What a commit of `reprocess` makes of an Iceberg table."""

import json

import pytest
from pyiceberg.table import DataScan
from pyiceberg.types import LongType
from tests.contracts.replacing import ReplacedTable, ReplacingContract, row

from headrace import Iceberg
from headrace.errors import SinkError
from headrace.sinks.lake.iceberg.catalog.catalogs import CatalogTable
from headrace.sinks.lake.iceberg.table import IcebergTable


class Table(ReplacedTable):
    format = Iceberg()

    @property
    def place(self):
        return CatalogTable.of(self.context, "default", "clicks")

    def files(self):
        tasks = self.place.existing().scan().plan_files()
        return {task.file.file_path.removeprefix("file://") for task in tasks}


class TestReplacing(ReplacingContract):
    table = Table


def test_the_summary_of_the_snapshot_has_its_position(tmp_path):
    table = Table(tmp_path)
    table.fill([row(1)])
    table.replace([row(1)])
    summary = table.place.existing().current_snapshot().summary
    assert json.loads(summary["headrace.positions"]) == {"": {"reprocess": 1}}


def test_rows_that_another_engine_has_deleted_come_back(tmp_path):
    table = Table(tmp_path, partition_by=("n",))
    rows = [row(n, n % 2) for n in range(6)]
    table.fill(rows)
    table.place.existing().delete("id = 'e2'")
    assert table.replace(rows) == (1, 0, 5)
    assert table.content() == table.expected(rows)


def test_files_that_stay_are_planned_once_for_each_comparison(tmp_path, monkeypatch):
    table = Table(tmp_path)
    table.fill([row(1), row(2)])
    plan_files, plans = DataScan.plan_files, []

    def noting(scan):
        plans.append(scan)
        return plan_files(scan)

    monkeypatch.setattr(DataScan, "plan_files", noting)
    assert table.replace([row(1, 1), row(2)]) == (1, 1, 1)
    assert len(plans) == 1


def test_a_column_that_changes_while_the_table_is_opened_is_refused(tmp_path, monkeypatch):
    """Files that tasks write have its old field id, by which its values would read as null."""
    table = Table(tmp_path, partition_by=("hour",))
    table.fill([row(1)])
    open_table = IcebergTable.open

    def opened(opening):
        spec = open_table(opening)
        with table.place.existing().update_schema() as update:
            update.delete_column("n")
        with table.place.existing().update_schema() as update:
            update.add_column("n", LongType())
        return spec

    monkeypatch.setattr(IcebergTable, "open", opened)
    with pytest.raises(SinkError, match="its columns have changed"):
        table.replace([row(1, 5), row(2, 5)])


def test_there_must_be_a_table(tmp_path):
    with pytest.raises(SinkError, match="there is none yet"):
        Table(tmp_path).open()


def test_files_whose_rows_another_engine_deletes_meanwhile_are_compared_again(tmp_path):
    table = Table(tmp_path, partition_by=("n",))
    table.fill([row(1), row(2)], [row(3), row(4)])
    rows = [row(1), row(2, tags="z"), row(3), row(4)]
    done = table.replace_meanwhile(rows, lambda: table.place.existing().delete("id = 'e1'"))
    assert done == (2, 1, 2)
    assert table.content() == table.expected(rows)
    assert {path for path in table.on_disk() if "-reprocessed-" in path} <= table.files()
