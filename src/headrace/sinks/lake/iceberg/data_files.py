"""Data files that were written, as an Iceberg table records them."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record

from headrace.sinks.lake.files.data_file import WriteSpec, WrittenFile
from headrace.sinks.lake.iceberg.catalog.catalogs import folder_of
from headrace.sinks.lake.iceberg.files import IcebergFiles
from headrace.sinks.lake.iceberg.schema import file_schema
from headrace.storage import files as storage

if TYPE_CHECKING:
    from pyiceberg.table import Table


def written_spec(table: Table, declared: WriteSpec) -> WriteSpec:
    """Returns what is written to a table: declared, with its folder and its field ids."""
    root, options = folder_of(table, declared.root)
    files = IcebergFiles(file_schema(table.metadata))
    return replace(declared, root=root, storage_options=options, files=files)


def data_file(table: Table, spec: WriteSpec, file: WrittenFile) -> DataFile:
    """Returns a file as the table records it.

    Args:
        table: of the file.
        spec: of its partitions, and of the types of their columns.
        file: as its writer describes it.
    """
    root, _ = folder_of(table, spec.root)
    stats = json.loads(file.stats)
    ends = stats["bounds"].items()
    return DataFile.from_args(
        _table_format_version=table.format_version,
        content=DataFileContent.DATA,
        file_path=storage.join(root, file.path),
        file_format=FileFormat.PARQUET,
        partition=Record(*(_value(spec, file, name) for name in file.partition_values)),
        record_count=file.rows,
        file_size_in_bytes=file.size,
        column_sizes=_by_id(stats["sizes"]),
        value_counts=dict.fromkeys(map(int, stats["nulls"]), file.rows),
        null_value_counts=_by_id(stats["nulls"]),
        lower_bounds={int(id_): struct.pack("<q", end[0]) for id_, end in ends},
        upper_bounds={int(id_): struct.pack("<q", end[1]) for id_, end in ends},
        split_offsets=stats["splits"],
        spec_id=table.metadata.default_spec_id,
    )


def _value(spec: WriteSpec, file: WrittenFile, name: str) -> object:
    """Returns the value of a partition of a file, as its transform gives it."""
    text = file.partition_values[name]
    if text is None:
        return None
    if name not in spec.layout.value_columns:
        # All of its rows are in one day, or hour.
        return (file.min_event_time_us or 0) // spec.time_key.grain_us
    kind = spec.schema.field(name).type
    if pa.types.is_boolean(kind):
        return text == "true"
    return int(text) if pa.types.is_integer(kind) else text


def _by_id(numbers: Mapping[str, int]) -> dict[int, int]:
    return {int(id_): number for id_, number in numbers.items()}
