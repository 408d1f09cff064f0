"""Which columns of rows are compared."""

import pyarrow as pa

from headrace.model.source import RECORD_COLUMNS
from headrace.sinks.unique.compared_rows import compared_columns


def test_columns_that_a_source_adds_are_not_compared():
    schema = pa.schema([(name, pa.string()) for name in ("id", "price", *sorted(RECORD_COLUMNS))])
    assert compared_columns(schema, ["id"]) == ("price",)
