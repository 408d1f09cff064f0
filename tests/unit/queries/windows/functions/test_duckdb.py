"""DuckDB, which shares no code with headrace, has the values of exact aggregates."""

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from tests.unit.queries.windows.functions.rows import MINUTE, accumulated, aggregation

from headrace.queries.language.functions import ValueType
from headrace.queries.windows.functions import Places

GROUPS, ROWS = 7, 5_000
HISTOGRAM = """
list_transform(
    [50, 75, 100],
    lambda low: len(list_filter(list(number), lambda x: x >= low AND x < low + 25))
)
"""


def events():
    random = np.random.default_rng(11)
    is_null = random.random(ROWS) < 0.1
    words = np.array(["", "a", "b", "B", "ä", "z", "\U0001f600"])
    return pa.table(
        {
            "group": pa.array(random.integers(0, GROUPS, ROWS)),
            "number": pa.array(random.normal(100, 30, ROWS), mask=is_null),
            "integer": pa.array(random.integers(-(10**6), 10**6, ROWS), mask=is_null),
            "text": pa.array(
                words[random.integers(0, len(words), ROWS)], pa.string(), mask=is_null
            ),
            "time": pa.array(random.permutation(ROWS) // 2),
            "offset": pa.array(np.arange(ROWS)),
        }
    )


@pytest.mark.parametrize(
    ("function", "column", "parameters", "sql"),
    [
        ("count", "text", (), "count(text)"),
        ("sum", "number", (), "fsum(number)"),
        ("sum", "integer", (), "sum(integer)"),
        ("average", "number", (), "favg(number)"),
        ("average", "integer", (), "avg(integer)"),
        ("stddev", "number", (), "stddev_pop(number)"),
        ("stddev", "integer", (), "stddev_pop(integer)"),
        ("min", "text", (), "min(text)"),
        ("max", "text", (), "max(text)"),
        ("min", "integer", (), "min(integer)"),
        ("max", "number", (), "max(number)"),
        ("latest", "text", (), 'arg_max(text, (time, "offset"))'),
        ("uniqueCount", "text", (), "count(DISTINCT text)"),
        ("histogram", "number", (50.0, 25.0, 3.0), HISTOGRAM),
    ],
)
def test_duckdb_has_the_values(function, column, parameters, sql):
    rows = events()
    of = aggregation(function, ValueType[column.upper()], *parameters)
    parts = [_partials(of, batch, column) for batch in rows.to_batches(max_chunksize=900)]
    values = [accumulated(of, of_group).value(MINUTE) for of_group in zip(*parts, strict=True)]
    with duckdb.connect() as connection:
        connection.register("events", rows)
        query = f'SELECT {sql} FROM events GROUP BY "group" ORDER BY "group"'
        assert values == [_close(value) for (value,) in connection.execute(query).fetchall()]


def _partials(of, batch, column):
    groups, times, offsets = (batch.column(name).to_numpy() for name in ("group", "time", "offset"))
    return of.partials(
        batch.column(column), groups, GROUPS, Places(times, np.zeros_like(times), offsets)
    )


def _close(value):
    return pytest.approx(value, rel=1e-9) if isinstance(value, float) else value
