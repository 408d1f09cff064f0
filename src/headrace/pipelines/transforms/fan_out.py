"""``fan_out``: gives a row to each of the streams that it belongs to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

from headrace.ledger.sums import Fate
from headrace.metrics import Metric
from headrace.model import FieldType
from headrace.model.fault import Fault
from headrace.pipelines.transforms.rules import UNDECIDED, rule_faults, with_every_rule
from headrace.pipelines.transforms.transform import Transform, new_column, refuse_taken

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.pipelines.ledger.counting.step_ledger import StepLedger

_STREAMS = "_headrace_streams"


@dataclass(frozen=True)
class fan_out(Transform):  # noqa: N801  a verb, as the steps of users are
    """Step: gives one row for each stream that the row belongs to.

    ========= ==================================================================================
    columns   as they come in, and ``into``, string: the name of the stream
    gives     for each row one row for each stream whose condition is true, in the order of
              ``streams``; rows stay in order. Counted by stream: ``streamed_<name>_rows``
    drops     rows that belong to no stream: ``fan_out_dropped_rows``
    null      a condition that is null is not true. Rows with such a condition count as
              ``fan_out_undecided_rows``, whatever else they belong to
    ids       the copies of a row have its event id. What is unique is the id with ``into``:
              de-duplicate, and write to PostgreSQL, by both
    ledger    a row of several streams counts once as out for each, and as *copied* for each beyond
              the first, as a negative number; rows of no stream are *filtered*
    state     none; the streams may change at any time
    a crash   repeats nothing, and a batch that is repeated gives the same rows. So a condition
              must not depend on chance: one with ``rand()`` refuses the start
    ========= ==================================================================================

    All copies go to the one sink of the pipeline, in one commit: a lake partitioned by ``into``,
    say. Several sinks are several pipelines on the topic: each has positions of its own, so that
    one that fails stops no other.

    A condition is an expression in Spark's SQL. ``headrace check`` does not read it; where it is
    wrong, or names a column that is not there, the start is refused.

    Attributes:
        into: the column to add; no column of the rows has its name.
        streams: conditions by the name of the stream; ``"true"`` takes every row. A name is part of
            the name of a metric: a letter, then letters, digits and ``_``.
        ledger: set by headrace where the pipeline runs.
    """

    into: str
    streams: Mapping[str, str]
    ledger: StepLedger | None = field(default=None, repr=False, compare=False)

    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric(
            "fan_out_dropped_rows",
            "rows",
            "rows that belong to no stream of `fan_out`",
            "rising: events of a new kind come, for which there is no stream",
            is_counter=True,
        ),
        Metric(
            "fan_out_undecided_rows",
            "rows",
            "rows for which the condition of a stream of `fan_out` is null",
            "not 0: a column of a condition is null; say in the condition what null means",
            is_counter=True,
        ),
    )

    @property
    def all_metrics(self) -> tuple[Metric, ...]:
        """The metrics of every ``fan_out``, and one for each stream."""
        return (
            *self.metrics,
            *(
                Metric(
                    _figure(name),
                    "rows",
                    f"rows of the stream `{name}` of `fan_out`",
                    "a step up or down: the events have changed, or the condition",
                    is_counter=True,
                )
                for name in self.streams
            ),
        )

    keeps_lineage: ClassVar[bool] = True

    def with_ledger(self, ledger: StepLedger) -> fan_out:
        """Returns the step with what counts the rows that it drops and adds."""
        return replace(self, ledger=ledger)

    def __call__(self, rows: DataFrame) -> DataFrame:
        """Finds the streams of each row, counts them, and makes a row for each."""
        from pyspark.sql import functions as F  # noqa: N812

        refuse_taken("fan_out.into", self.into, rows)
        names = F.array_remove(_STREAMS, UNDECIDED)
        by_stream = {_figure(name): F.array_contains(_STREAMS, name) for name in self.streams}
        counted = self.count(
            with_every_rule(rows, _STREAMS, self.streams),
            fan_out_dropped_rows=F.size(names) == 0,
            fan_out_undecided_rows=F.array_contains(_STREAMS, UNDECIDED),
            **by_stream,
        )

        def exploded(rows: DataFrame) -> DataFrame:
            return rows.withColumn(self.into, F.explode(names)).drop(_STREAMS)

        if self.ledger is None:
            return exploded(counted)
        streamed = self.ledger.without(counted, F.size(names) == 0, Fate.FILTERED)
        return self.ledger.around(streamed, exploded, Fate.COPIED)

    def faults(self, columns: Mapping[str, FieldType] | None) -> Iterator[Fault]:
        """Yields a fault for streams that are missing, and for a column that is there already."""
        yield from rule_faults("fan_out.streams", self.streams, 'streams={"all": "true"}')
        yield from new_column("fan_out.into", self.into, columns)

    def columns_after(self, columns: Mapping[str, FieldType]) -> Mapping[str, FieldType]:
        """Returns the columns that come in, and its own."""
        return {**columns, self.into: FieldType.STRING}


def _figure(name: str) -> str:
    return f"streamed_{name}_rows"
