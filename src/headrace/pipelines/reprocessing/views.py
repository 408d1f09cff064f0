"""Views of `reprocess`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.markup import escape

from headrace.cli.output import Live, PrintLine
from headrace.cli.screen import Screen, status_line, table
from headrace.cli.view import view
from headrace.pipelines.reprocessing.plan import Observe, ReprocessPlan, ReprocessProgress
from headrace.pipelines.reprocessing.ranges import PlannedRange
from headrace.pipelines.reprocessing.reprocess import ReprocessResult


@view.register
def _planned(plan: ReprocessPlan, screen: Screen) -> None:
    name = f"[bold]{escape(plan.pipeline)}[/]"
    if not plan.ranges:
        screen.line(f"{name}: no records came between {_times(plan)}.")
        return
    screen.line(
        f"{name}: {plan.offsets:,} offsets that came between {_times(plan)}, in {plan.parts:,} "
        f"part(s), by about {plan.tasks:,} tasks"
    )
    ranges = table("partition", "from", "to", "offsets", "", right=(1, 2, 3))
    for range_ in plan.ranges:
        offsets = (str(range_.start), str(range_.end), f"{range_.span:,}")
        ranges.add_row(escape(range_.partition), *offsets, _remark(range_))
    screen.out.print(ranges, highlight=False)


@view.register
def _reprocessed(result: ReprocessResult, screen: Screen) -> None:
    plan, done = result.plan, result.done
    if not plan.offsets:
        _planned(plan, screen)
        return
    for range_ in plan.ranges:
        if remark := _remark(range_):
            screen.line(f"{escape(range_.partition)}: {remark}")
    ending = ""
    if result.state == "interrupted":
        ending = f" Interrupted after {done.parts:,} of {plan.parts:,} parts, which stay."
    screen.line(f"[bold]{escape(plan.pipeline)}[/]: {_figures(done)}.{ending}")


def _times(plan: ReprocessPlan) -> str:
    return f"{plan.times.start.isoformat()} and {plan.times.end.isoformat()}"


def _remark(range_: PlannedRange) -> str:
    remarks = []
    if range_.expired:
        remarks.append(f"records before offset {range_.expired:,} were deleted")
    if range_.live:
        remarks.append(f"{range_.live:,} more are left to the live pipeline")
    return ", ".join(remarks)


def _figures(done: ReprocessProgress) -> str:
    text = f"{done.records:,} records read again by {done.tasks:,} tasks, {done.rows:,} rows"
    if done.rows_added or done.rows_removed or done.rows_kept:
        changed = f"{done.rows_added:,} added, {done.rows_removed:,} removed"
        text += f": {changed}, {done.rows_kept:,} kept"
    return f"{text}; {done.dead_letters:,} rejected" if done.dead_letters else text


@contextmanager
def _on_screen(screen: Screen) -> Iterator[Observe]:
    # On stderr: stdout holds the result alone.
    with status_line(screen.err, "Reading") as show:
        yield lambda done: show(f"{done.offsets:,} offsets done, {_figures(done)}")


@contextmanager
def _in_json(print_line: PrintLine) -> Iterator[Observe]:
    yield print_line


reprocessing = Live(_on_screen, _in_json)
