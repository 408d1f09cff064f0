"""Estimates of many values are within the bounds of their sketches, in any batches."""

import itertools
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from tests.unit.queries.windows.functions.rows import MINUTE, accumulated, aggregation

from headrace.queries.language.functions import ValueType
from headrace.queries.windows.functions import Places

NO_PLACES = Places(*np.zeros((3, 0), np.int64))


def accumulator_of(of, arrays):
    """Returns the accumulator of batches, each with two groups that are merged."""
    parts = [of.partials(values, np.arange(len(values)) % 2, 2, NO_PLACES) for values in arrays]
    return accumulated(of, itertools.chain(*parts))


@pytest.mark.parametrize("kind", ["text", "integer", "number"])
@pytest.mark.parametrize("count", [300, 1_000, 30_000])
def test_a_count_of_different_values_is_close_and_that_of_few_exact(kind, count):
    numbers = pa.array(np.random.default_rng(count).permutation(np.arange(count).repeat(2)))
    values = numbers.cast(
        {"text": pa.string(), "integer": pa.int64(), "number": pa.float64()}[kind]
    )
    value_type = ValueType[kind.upper()]
    of = aggregation("uniqueCount", value_type)
    batches = [values[start : start + 7_000] for start in range(0, len(values), 7_000)]
    value = accumulator_of(of, batches).value(MINUTE)
    assert value == pytest.approx(count, rel=0 if count == 300 else 0.05)
    assert accumulator_of(of, batches[::-1]).value(MINUTE) == value


@pytest.mark.parametrize("count", [380, 390, 2_000, 20_000])
def test_a_count_of_different_values_does_not_depend_on_order_or_batches(count):
    of = aggregation("uniqueCount", ValueType.INTEGER)
    values = set()
    for seed, batches in itertools.product(range(3), [1, 2, 20]):
        ordered = np.random.default_rng(seed).permutation(count)
        parts = [
            of.partials(pa.array(batch), np.zeros(len(batch), int), 1, NO_PLACES)
            for batch in np.array_split(ordered, batches)
        ]
        accumulator = accumulated(of, itertools.chain(*parts))
        values |= {
            accumulator.value(MINUTE),
            accumulated(of, [accumulator.partial()]).value(MINUTE),
        }
    assert len(values) == 1


def test_a_snapshot_of_a_sketch_has_its_value():
    of = aggregation("uniqueCount", ValueType.INTEGER)
    accumulator = accumulator_of(of, [pa.array(range(5_000)), pa.array(range(4_000, 9_000))])
    restored = accumulated(of, [accumulator.partial()])
    assert restored.value(MINUTE) == accumulator.value(MINUTE)
    assert restored.partial() == accumulator.partial()


@pytest.mark.parametrize("percentage", [0.0, 1.0, 50.0, 95.0, 99.9, 100.0])
@pytest.mark.parametrize("value_type", [ValueType.INTEGER, ValueType.NUMBER])
def test_a_percentile_of_many_values_is_close(percentage, value_type):
    count = 50_000
    values = pa.array(np.random.default_rng(7).permutation(count) + 1)
    values = values if value_type is ValueType.INTEGER else values.cast(pa.float64())
    of = aggregation("percentile", value_type, percentage)
    batches = [values[start : start + 9_000] for start in range(0, count, 9_000)]
    accumulator = accumulator_of(of, batches)
    value = accumulator.value(MINUTE)
    # Twice the bound of 99 of 100 cases: sketches choose by chance.
    tolerance = 2 * 0.0133 * count if 0 < percentage < 100 else 0
    assert value == pytest.approx(max(1, percentage / 100 * count), rel=0, abs=tolerance)
    assert accumulated(of, [accumulator.partial()]).value(MINUTE) == value


@pytest.mark.parametrize("percentage", [0.0, 33.0, 50.0, 99.0, 100.0])
def test_a_percentile_of_few_values_is_exact_in_any_batches(percentage):
    values = np.random.default_rng(3).permutation(200) + 1
    of = aggregation("percentile", ValueType.INTEGER, percentage)
    batches = [pa.array(values[start : start + 9]) for start in range(0, 200, 9)]
    assert accumulator_of(of, batches).value(MINUTE) == max(1, 2 * percentage)


PERCENTAGES = [*map(str, range(1, 101)), "1.1", "12.5", "33.3", "55.55", "99.5", "99.9", "99.99"]


@pytest.mark.parametrize("percentage", PERCENTAGES)
def test_a_percentile_of_few_values_is_the_smallest_that_is_not_less_than_its_share(percentage):
    of = aggregation("percentile", ValueType.INTEGER, float(percentage))
    for count in range(1, 201):
        [partial] = of.partials(pa.array(range(1, count + 1)), np.zeros(count, int), 1, NO_PLACES)
        is_enough = (n for n in range(1, count + 1) if n * 100 >= Decimal(percentage) * count)
        assert accumulated(of, [partial]).value(MINUTE) == next(is_enough)


@pytest.mark.parametrize(("function", "limit"), [("uniqueCount", 3_500), ("percentile", 9_000)])
def test_a_partial_of_many_values_is_limited(function, limit):
    parameters = (50.0,) if function == "percentile" else ()
    of = aggregation(function, ValueType.INTEGER, *parameters)
    values = pa.array(np.arange(300_000))
    assert len(accumulator_of(of, [values]).partial()) < limit
