"""What differs between the query that a checkpoint was begun with, and that of a start."""

from dataclasses import replace

import pytest

from headrace.pipelines.start.query_record import Difference, QueryRecord

BEGUN = QueryRecord(
    "4.0.1",
    ["clicks", "views"],
    [{"name": "deduplicate", "by": ["id"]}],
    [{"name": "Aggregate", "by": ["page"]}],
)


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"sources": ["views", "clicks"]}, "order of sources"),
        ({"sources": ["clicks"]}, "sources"),
        ({"transforms": []}, "transforms with state"),
        ({"operators": [{"name": "Aggregate", "by": ["user"]}]}, "Aggregate.by"),
        ({"operators": []}, "stateful operators"),
    ],
)
def test_what_differs_is_named(changes, part):
    assert BEGUN.difference(BEGUN) is None
    difference = BEGUN.difference(replace(BEGUN, **changes))
    assert isinstance(difference, Difference)
    assert (difference.part, difference.before != difference.now) == (part, True)


def test_after_an_update_of_spark_its_operators_are_not_compared():
    updated = replace(BEGUN, spark="4.1.0")
    assert BEGUN.difference(replace(updated, operators=[{"name": "Other"}])) is None
    assert BEGUN.difference(replace(updated, transforms=[])).part == "transforms with state"
    assert BEGUN.difference(replace(updated, sources=["clicks"])).part == "sources"
