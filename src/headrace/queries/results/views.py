"""Views of `query results`, `explain` and `instances`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
from rich.live import Live as LiveTable
from rich.table import Table

from headrace.cli.encoding import encoded, merged
from headrace.cli.output import Live, PrintLine
from headrace.cli.screen import Screen, safe, table
from headrace.cli.view import view
from headrace.queries.views import entry_members, show_entry
from headrace.queries.windows.instance.owners import InstanceSlot, uncovered_partitions
from headrace.queries.windows.instance.views import numbers_text, utc_text

if TYPE_CHECKING:
    from headrace.queries.records.result import QueryResult
    from headrace.queries.results.explanation import QueryExplanation
    from headrace.queries.sample import QuerySample

ShowResult: TypeAlias = Callable[["QueryResult"], None]
_MAX_SHOWN_ROWS = 30
_FRAME_LINES = 5  # of a table, and the prompt


@dataclass(frozen=True)
class InstanceSlots:
    """The slots of standing queries, and who has them."""

    slots: tuple[InstanceSlot, ...]

    @property
    def uncovered(self) -> tuple[int, ...]:
        """Returns the partitions that no instance has."""
        return uncovered_partitions(self.slots)

    def to_json(self) -> dict[str, Any]:
        """Returns the slots, and the partitions that are uncovered."""
        return {"slots": self.slots, "uncovered": self.uncovered}


@dataclass(frozen=True)
class ShownExplanation:
    """Why a query gives what it gives."""

    explanation: QueryExplanation

    def to_json(self) -> dict[str, Any]:
        """Returns the query, and what is known of its events, pipelines and instances."""
        known = self.explanation
        sample: dict[str, Any] | None = None
        if known.sample is not None:
            figures = {
                "candidate_share": known.sample.candidate_share,
                "candidates_per_match": known.sample.candidates_per_match,
            }
            sample = merged(encoded(known.sample), figures)
        return {
            "query": entry_members(known.entry),
            "sample": sample,
            "pipelines": known.pipelines,
            "instances": known.instances,
            "uncovered": uncovered_partitions(known.instances),
            "late_events": known.late_events,
            "unknown": known.unknown,
        }


@view.register
def _slots(result: InstanceSlots, screen: Screen) -> None:
    _instances(result.slots, screen)


@view.register
def _explained(result: ShownExplanation, screen: Screen) -> None:
    known = result.explanation
    show_entry(known.entry, screen)
    if known.sample is not None:
        screen.line("")
        _sample(known.sample, screen)
    if known.pipelines:
        screen.line("")
        titles = ("pipeline", "has the query", "its queries are", "last batch", "event time", "lag")
        matching = table(*titles, right=(5,))
        for pipeline in known.pipelines:
            has_query = {True: "yes", False: "not yet", None: "not known"}[pipeline.has_query]
            rules = {True: "as registered", False: "OTHERS", None: "not known"}
            queries = rules[pipeline.has_registered_rules]
            times = (utc_text(pipeline.planned_at), utc_text(pipeline.event_time))
            lag = "" if pipeline.lag is None else f"{pipeline.lag:,}"
            matching.add_row(*map(safe, (pipeline.pipeline, has_query, queries, *times)), lag)
        screen.out.print(matching, highlight=False)
    screen.line("")
    _instances(known.instances, screen)
    if known.late_events is not None:
        screen.line(f"{known.late_events:,} events came after their window had ended.")
    for sentence in known.unknown:
        screen.line(f"[dim]Not known: {safe(sentence)}.")


def _sample(sample: QuerySample, screen: Screen) -> None:
    at = sample.newest_match
    newest = "" if at is None else f", the newest of {utc_text(at)}"
    screen.line(
        f"Of the newest {sample.events:,} events, {sample.matches:,} match"
        f"{newest}; {sample.untimed:,} have no event time, and {sample.rejected:,} records"
        " are no events."
    )
    if sample.operands:
        operands = table("condition, in the order of evaluation", "events", "meet it", right=(1, 2))
        for operand in sample.operands:
            operands.add_row(safe(operand.text), f"{operand.reached:,}", f"{operand.met:,}")
        screen.out.print(operands, highlight=False)
    screen.line(_cost(sample))
    if sample.groups is not None:
        limit = f"of at most {sample.max_groups:,} in a window"
        screen.line(f"Groups among these matches: {sample.groups:,}, {limit}.")


def _cost(sample: QuerySample) -> str:
    per_match = sample.candidates_per_match
    cost = "" if per_match is None else f", {per_match:,.1f} for each match"
    if not sample.lookup:
        return f"No index: every event is looked at{cost}."
    share = "" if sample.candidate_share is None else f" ({sample.candidate_share:.2%} of events)"
    return f"Looked up by {safe(sample.lookup)}: {sample.candidates:,} candidates{share}{cost}."


def _instances(slots: Sequence[InstanceSlot], screen: Screen) -> None:
    instances = table("slot", "partitions", "instance", "host", "renewed", right=(4,))
    for slot in slots:
        age = slot.renewal_age_seconds
        renewed = "" if age is None else f"{age:,.1f} s ago"
        texts = (str(slot.slot), numbers_text(slot.partitions), slot.holder[:8], slot.host, renewed)
        instances.add_row(*map(safe, texts))
    screen.out.print(instances, highlight=False)
    uncovered = uncovered_partitions(slots)
    if uncovered:
        screen.warning(
            f"No instance has partitions {numbers_text(uncovered)}: their windows have no results "
            "until you start more with `headrace query run`."
        )


@contextmanager
def _listed(screen: Screen) -> Iterator[ShowResult]:
    results: list[QueryResult] = []
    yield results.append
    if results:
        screen.out.print(_table(results), highlight=False)
    else:
        screen.line("There are no results yet; `headrace query explain` says why.")


@contextmanager
def _followed(screen: Screen) -> Iterator[ShowResult]:
    if not screen.out.is_terminal:
        yield lambda result: screen.line(safe(_line(result)))
        return
    newest = NewestWindows()
    # Drawn at each result: rich would otherwise redraw old ones on a thread of its own.
    with LiveTable(console=screen.out, auto_refresh=False) as live:

        def show(result: QueryResult) -> None:
            newest.add(result)
            room = max(1, screen.out.size.height - _FRAME_LINES)
            live.update(_table(newest.results()[-room:]), refresh=True)

        yield show


@contextmanager
def _as_lines(print_line: PrintLine) -> Iterator[ShowResult]:
    yield lambda result: print_line(msgspec.to_builtins(result))


listed_results = Live(_listed, _as_lines)
followed_results = Live(_followed, _as_lines)


class NewestWindows:
    """The results of the newest windows that a screen has room for, early ones replaced."""

    def __init__(self) -> None:
        self._results: list[QueryResult] = []

    def add(self, result: QueryResult) -> None:
        """Takes the next result."""
        from headrace.queries.results.results import newest_results

        self._results = newest_results([*self._results, result])[-_MAX_SHOWN_ROWS:]

    def results(self) -> Sequence[QueryResult]:
        """Returns the results, those of the newest window last."""
        return self._results


def _table(results: Sequence[QueryResult]) -> Table:
    """Returns a row for each result.

    A query that was updated may have had other columns before. Where results are of several texts,
    a last column says of which.
    """
    facets = list(dict.fromkeys(name for result in results for name in result.facets))
    columns = list(dict.fromkeys(name for result in results for name in result.values))
    has_texts = len({_text(result) for result in results}) > 1
    last = ["registered"] if has_texts else []
    names = map(safe, ("window", *facets, *columns, "kind", *last))
    shown = table(*names, right=tuple(range(1 + len(facets), 1 + len(facets) + len(columns))))
    for result in results:
        cells = [
            _window(result),
            *(_facet(result, name) for name in facets),
            *(_value(result.values.get(name)) for name in columns),
            result.kind.value,
            *([_text(result)] if has_texts else []),
        ]
        shown.add_row(*map(safe, cells))
    return shown


def _line(result: QueryResult) -> str:
    groups = [f"{name}={_facet(result, name)}" for name in result.facets]
    others = ["other groups"] if result.is_other else []
    values = [f"{name} {_value(value)}" for name, value in result.values.items()]
    text = [f"revision {result.revision}"] if result.revision > 1 else []
    return ", ".join((f"{_window(result)} {result.kind.value}", *groups, *others, *values, *text))


def _text(result: QueryResult) -> str:
    """Returns which text of the query the result is of."""
    return f"{result.registered}, revision {result.revision}"


def _window(result: QueryResult) -> str:
    return f"{result.begin} to {result.end}"


def _facet(result: QueryResult, name: str) -> str:
    return "other" if result.is_other else _value(result.facets.get(name))


def _value(value: Any) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return str(value).lower()
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.6g}" if abs(value) < 1e6 else f"{value:,.2f}"  # noqa: PLR2004
        case list():
            return " ".join(map(_value, value))
    return str(value)
