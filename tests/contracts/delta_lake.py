"""The real thing under the contract of sinks: Parquet files and a Delta log, at any URI."""

import pyarrow as pa

from headrace import Lake, UnsafeValues
from headrace.sinks.lake.delta.table import LakeTable, read_table
from headrace.sinks.lake.files.data_file import WriteSpec
from headrace.sinks.lake.writer import PartitionedWriter
from headrace.storage.files import NO_OPTIONS, list_files

COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("at", pa.timestamp("us", "UTC")),
        ("campaign", pa.string()),
        ("clicked", pa.bool_()),
    ]
)
IMPRESSIONS = Lake(
    "impressions",
    partition_by=("day", "hour", "campaign"),
    unsafe_values=UnsafeValues.RESCUE,
)


class DeltaLake:
    def __init__(self, uri, *, declared=IMPRESSIONS, columns=COLUMNS, storage_options=NO_OPTIONS):
        layout = declared.layout
        self.spec = WriteSpec(uri, columns, layout, "at", storage_options=storage_options)

    def open(self):
        return LakeTable(self.spec)

    def write(self, rows):
        writer = PartitionedWriter(self.spec, "task")
        assert writer.write(pa.Table.from_pylist(rows, self.spec.schema)) == []
        return writer.finish()

    def rows(self):
        return read_table(self.spec.root, None, self.spec.storage_options).to_pylist()

    def stored(self):
        names = list_files(self.spec.root, self.spec.storage_options)
        return sum(name.endswith(".parquet") and "_delta_log" not in name for name in names)
