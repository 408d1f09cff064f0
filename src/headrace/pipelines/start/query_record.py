"""What the checkpoint of a query was started with: its sources, and the steps that keep state.

Spark finds offsets and state by position: the second source of a query gets the second offset, and
its first stateful operator the first state. Of a changed query it compares only types of columns,
so keys of one column would be compared with those of another. That is why each start is held
against what is recorded here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.pipelines.transforms.transform import Transform
from headrace.storage import files as storage

if TYPE_CHECKING:
    from headrace.pipelines.declaration import Pipeline

Description = Mapping[str, Any]
"""A transform or an operator, and what its state depends on; values of JSON."""


class Difference(NamedTuple):
    """Something that is not as it was recorded."""

    part: str
    before: str
    now: str


@dataclass(frozen=True)
class QueryRecord:
    """What a query's offsets and state depend on.

    Attributes:
        spark: version of Spark, which names the operators.
        sources: names of topics, in the order of Spark's plan.
        transforms: those of headrace that keep state, in the order of the steps.
        operators: stateful operators of Spark's plan, from the last one to the first.
    """

    spark: str
    sources: Sequence[str]
    transforms: Sequence[Description]
    operators: Sequence[Description]

    def difference(self, now: QueryRecord) -> Difference | None:
        """Returns what differs in ``now``, or None.

        Another version of Spark may name its operators otherwise: then they are not compared.
        """
        if self.sources != now.sources:
            same = set(self.sources) == set(now.sources)
            part = "order of sources" if same else "sources"
            return Difference(part, _text(self.sources), _text(now.sources))
        changed = difference_of("transforms with state", self.transforms, now.transforms)
        if changed is None and self.spark == now.spark:
            changed = difference_of("stateful operators", self.operators, now.operators)
        return changed


def described_transforms(pipeline: Pipeline) -> list[Description]:
    """Returns the join and the transforms of a pipeline, which keep state."""
    join = pipeline.join
    joins: list[Description] = []
    if join is not None:
        later, earlier = (source.topic.name for source in join.sources)
        # Durable files are written by slices of `within`, and their keys depend on `match`.
        state = {"on": list(join.on), "match": join.match.value, "within": str(join.within)}
        joins = [{"name": "Join", "later": later, "earlier": earlier, **state}]
    return joins + [
        {"name": type(step).__name__, **step.state()}
        for step in pipeline.steps_for_topic
        if isinstance(step, Transform) and step.state()
    ]


def difference_of(
    what: str, before: Sequence[Description], now: Sequence[Description]
) -> Difference | None:
    """Returns the first difference between two lists of transforms or operators."""
    names = [[description["name"] for description in list_] for list_ in (before, now)]
    if names[0] != names[1]:
        return Difference(what, _text(names[0]), _text(names[1]))
    for old, new in zip(before, now, strict=True):
        for key in dict.fromkeys((*old, *new)):
            if old.get(key) != new.get(key):
                return Difference(f"{old['name']}.{key}", _text(old.get(key)), _text(new.get(key)))
    return None


def read_query(checkpoint: str) -> QueryRecord | None:
    """Returns what a checkpoint was started with; None if nothing is recorded."""
    path = _path(checkpoint)
    return QueryRecord(**json.loads(storage.read_bytes(path))) if storage.exists(path) else None


def write_query(checkpoint: str, query: QueryRecord) -> None:
    """Records what a checkpoint is started with."""
    storage.write_bytes_atomic(_path(checkpoint), json.dumps(asdict(query)).encode())


def _path(checkpoint: str) -> str:
    return storage.join(checkpoint, "headrace", "query.json")


def _text(value: object) -> str:
    return json.dumps(value)
