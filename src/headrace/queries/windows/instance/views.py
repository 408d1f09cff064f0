"""What `query run` shows while it runs, and `status` of instances of standing queries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.console import Group
from rich.markup import escape

from headrace.cli.screen import safe, table, with_remarks
from headrace.cli.service_progress import live_figures, remark_names
from headrace.events.times import time_of
from headrace.service.status import State

if TYPE_CHECKING:
    from headrace.queries.windows.instance.status import QueryInstanceStatus


def summary(statuses: Sequence[QueryInstanceStatus]) -> Group:
    """Returns a table of instances, and below it why they wait or failed."""
    titles = ("queries", "instance", "state", "partitions", "records", "results", "windows", "late")
    instances = table(*titles, right=(4, 5, 6, 7))
    for status in statuses:
        figures = (status.records, status.results, status.windows, status.late_events)
        names = (status.name, status.instance, str(status.state), numbers_text(status.owned))
        instances.add_row(*map(escape, names), *(f"{figure:,}" for figure in figures))
    named = zip(remark_names(statuses), statuses, strict=True)
    remarks = ((name, reason) for name, status in named for reason in _reasons(status))
    return with_remarks(instances, remarks, safe)


def _reasons(status: QueryInstanceStatus) -> Iterator[str]:
    if status.reason:
        yield status.reason
    if status.uncovered:
        yield f"no instance has partitions {numbers_text(status.uncovered)}"
    for topic, events in status.unbalanced.items():
        if events:
            what = f"{events:,} matches of {topic} are missing or too many"
            yield f"{what}: see `headrace reconcile`"
    for query, reason in status.faulty.items():
        yield f"query {query} can't be added up: {reason}"


def _text(status: QueryInstanceStatus) -> str:
    if status.state is State.WAITING:
        figures = [f"waits: {status.reason}"]
    else:
        figures = [
            f"partitions {numbers_text(status.owned) or 'none'}",
            f"{status.windows:,} windows open",
        ]
    figures.append(f"{status.results:,} results written")
    for topic, seconds in status.behind_seconds.items():
        side = "behind" if seconds >= 0 else "ahead of"
        at = utc_text(time_of(status.event_ms[topic] * 1000))
        figures.append(f"{topic} at {at}, {abs(seconds):,.0f} s {side} the clock")
    if status.late:
        figures.append(f"{status.late_events:,} late events")
    if status.faulty:
        figures.append(f"{status.faulty_queries:,} faulty queries")
    if status.unbalanced_events:
        figures.append(f"WARNING: {status.unbalanced_events:,} matches missing or too many")
    if status.uncovered:
        figures.append(f"WARNING: no instance has partitions {numbers_text(status.uncovered)}")
    return ", ".join(figures)


answering = live_figures(_text)


def numbers_text(partitions: Iterable[int]) -> str:
    """Returns numbers of partitions as a text."""
    return ", ".join(map(str, partitions))


def utc_text(time: datetime | None) -> str:
    """Returns a time to the second; an empty text where there is none."""
    return "" if time is None else time.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
