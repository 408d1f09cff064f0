"""Which types of Spark a table takes, at any depth."""

import io

import pyarrow.parquet as pq
import pytest
from deltalake import Schema
from hypothesis import given
from hypothesis import strategies as st
from pyspark.ml.linalg import VectorUDT
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_schema

from headrace.pipelines.steps.step_columns import untaken_columns

TAKEN = [
    T.BinaryType(),
    T.BooleanType(),
    T.ByteType(),
    T.DateType(),
    T.DecimalType(38, 18),
    T.DoubleType(),
    T.FloatType(),
    T.IntegerType(),
    T.LongType(),
    T.ShortType(),
    T.StringType(),
    T.StringType("UTF8_LCASE"),
    T.TimestampNTZType(),
    T.TimestampType(),
    VectorUDT(),
]
UNTAKEN = {
    "void": T.NullType(),
    "variant": T.VariantType(),
    "interval": T.CalendarIntervalType(),
    "interval day to second": T.DayTimeIntervalType(),
    "interval year to month": T.YearMonthIntervalType(0, 1),
    "time(6)": T.TimeType(),
    "char(3)": T.CharType(3),
    "geometry(4326)": T.GeometryType(4326),
    "struct<>": T.StructType(),
    "struct<a:int,a:int>": T.StructType([T.StructField("a", T.IntegerType())] * 2),
    "struct<a:int,A:int>": T.StructType().add("a", T.IntegerType()).add("A", T.IntegerType()),
    "struct<:int>": T.StructType().add("", T.IntegerType()),
}


def nested(inner):
    """Types with one of ``inner`` within, several levels deep."""
    taken = st.sampled_from(TAKEN)

    def around(within):
        beside = st.tuples(taken, within, taken)
        return (
            within.map(T.ArrayType)
            | st.builds(T.MapType, st.just(T.StringType()), within)
            | beside.map(lambda kinds: T.StructType().add("a", kinds[0]).add("b", kinds[1]))
        )

    return st.recursive(inner, around, max_leaves=4)


@given(kind=nested(st.sampled_from(TAKEN)))
def test_a_type_that_is_taken_is_one_of_delta_and_parquet(kind):
    schema = T.StructType().add("x", kind)
    assert untaken_columns(schema) == {}
    arrow = to_arrow_schema(schema, timezone="UTC")
    assert Schema.from_arrow(arrow).fields[0].name == "x"
    pq.write_table(arrow.empty_table(), io.BytesIO())


@given(kind=nested(st.sampled_from([*UNTAKEN.values()])))
def test_any_other_type_is_found_at_any_depth_and_named_with_its_column(kind):
    schema = T.StructType().add("id", T.LongType()).add("x", kind)
    [(column, problem)] = untaken_columns(schema).items()
    assert column == "x"
    assert problem.startswith(f"it makes column 'x' of type {kind.simpleString()}, which no table")


@pytest.mark.parametrize("text", UNTAKEN)
def test_a_type_is_named_as_spark_writes_it(text):
    [problem] = untaken_columns(T.StructType().add("x", UNTAKEN[text])).values()
    assert f" of type {text}, " in problem


@pytest.mark.parametrize("second", ["x", "X"])
def test_columns_of_one_name_are_named(second):
    schema = T.StructType().add("id", T.LongType()).add("x", T.LongType())
    assert list(untaken_columns(schema.add(second, T.StringType()))) == ["x"]


def test_a_column_with_an_empty_name_is_refused():
    schema = T.StructType().add("id", T.LongType()).add("", T.LongType())
    assert "an empty name" in untaken_columns(schema)[""]
