"""Constants of all shapes have their places in one struct."""

import pyarrow as pa
from tests.unit.queries.compile.arrow.expressions import VISITS

from headrace.queries.compile.arrow import compile_expression
from headrace.queries.compile.spark import ConstantLayout
from headrace.queries.language import parse_query


def test_each_constant_is_a_list_among_those_of_its_type():
    text = (
        "country = 'PL' AND views IN (1, 2) AND price > 2.5 AND is_new = TRUE"
        " AND at > '1970-01-01T00:00:01Z' AND title IN ('a', 'b') AND views < 7"
    )
    where = parse_query(f"SELECT count(*) FROM visits WHERE {text}").where
    compiled = compile_expression(where, VISITS)
    assert ConstantLayout(compiled.constant_types).values(compiled.constants) == {
        "texts": [["PL"], ["a", "b"]],
        "integers": [[1, 2], [1_000_000], [7]],
        "numbers": [[2.5]],
        "booleans": [[True]],
    }


def test_a_shape_without_constants_has_empty_lists():
    values = ConstantLayout([]).values([])
    assert values == {"texts": [], "integers": [], "numbers": [], "booleans": []}


def test_a_list_may_be_empty():
    layout = ConstantLayout([pa.list_(pa.int64())])
    assert layout.values([()])["integers"] == [[]]
