"""What a data file of an Iceberg table holds, and what the table records of it.

Runs in Spark's Python workers: no Iceberg library is loaded here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.sinks.lake.files.data_file import EventTimeRange
from headrace.sinks.lake.files.partitions import Partition

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import parquet

_FIELD_ID = b"PARQUET:field_id"


@dataclass(frozen=True)
class IcebergFiles:
    """Files of an Iceberg table: all of its columns, with their field ids.

    Attributes:
        schema: columns of the table, with field ids in the metadata of their fields.
    """

    schema: pa.Schema

    def rows(self, rows: pa.Table, partition: Partition) -> pa.Table:
        """See :meth:`~headrace.sinks.lake.files.data_file.FileForm.rows`."""
        import pyarrow as pa

        texts = dict(partition.values)
        columns = [self._column(rows, field, texts) for field in self.schema]
        fields = [
            pa.field(field.name, column.type, metadata=field.metadata)
            for field, column in zip(self.schema, columns, strict=True)
        ]
        return pa.table(columns, schema=pa.schema(fields))

    def _column(self, rows: pa.Table, field: pa.Field, texts: Mapping[str, str | None]) -> Any:
        import pyarrow as pa

        if field.name in rows.column_names:
            column = rows[field.name]
            # Field ids of nested fields are in their type, and Iceberg has no short numbers. Others
            # keep views of texts uncopied.
            is_cast = pa.types.is_nested(field.type) or pa.types.is_integer(field.type)
            return column.cast(field.type) if is_cast else column
        if field.name not in texts:
            return pa.nulls(rows.num_rows, field.type)
        value = pa.scalar(texts[field.name] or None, pa.string())
        return pa.repeat(value, rows.num_rows).cast(field.type)

    def stats(
        self,
        footer: parquet.FileMetaData,
        times: Mapping[str, EventTimeRange],
        rows: pa.Table | None = None,
    ) -> str:
        """See :meth:`~headrace.sinks.lake.files.data_file.FileForm.stats`; columns go by their ids.

        Those with nested fields have no statistics.
        """
        ids = field_ids(self.schema)
        sizes = dict.fromkeys(ids, 0)
        groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
        for group in groups:
            for number in range(group.num_columns):
                chunk = group.column(number)
                if chunk.path_in_schema in sizes:
                    sizes[chunk.path_in_schema] += chunk.total_compressed_size
        counts = {name: time.nulls for name, time in times.items()}
        if rows is not None:
            counts = {name: rows[name].null_count for name in ids}
        return json.dumps(
            {
                "sizes": {ids[name]: size for name, size in sizes.items()},
                "nulls": {ids[name]: nulls for name, nulls in counts.items()},
                "bounds": {
                    ids[name]: [time.lowest_us, time.highest_us]
                    for name, time in times.items()
                    if time.lowest_us is not None
                },
                "splits": [_begin(group) for group in groups],
            }
        )


def field_ids(schema: pa.Schema) -> dict[str, int]:
    """Returns the ids of columns without nested fields, by name."""
    from pyarrow import types

    return {
        field.name: int(field.metadata[_FIELD_ID])
        for field in schema
        if not types.is_nested(field.type)
    }


def _begin(group: parquet.RowGroupMetaData) -> int:
    """Returns where the first page of a row group starts in the file."""
    first = group.column(0)
    if first.has_dictionary_page:
        return int(min(first.dictionary_page_offset, first.data_page_offset))
    return int(first.data_page_offset)
