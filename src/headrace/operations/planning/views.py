"""Views of `plan` and `apply`."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from rich.markup import escape

from headrace.cli.screen import Screen
from headrace.cli.view import view
from headrace.kafka.admin.topics import Action
from headrace.operations.planning.plan import AppliedPlan, Plan
from headrace.pipelines.late_data.declaration import LateData

# A float lacks the digits of timedelta.max, and rounds it up.
_MAX_SECONDS = timedelta.max // timedelta(seconds=1)
_SIGNS = {
    Action.CREATE: "[green]+",
    Action.ADD_PARTITIONS: "[yellow]~",
    Action.ALTER_CONFIG: "[yellow]~",
    Action.REFUSED: "[red]!",
}


@view.register
def _planned(plan: Plan, screen: Screen) -> None:
    if plan.broker_down:
        screen.warning(plan.broker_down)
        screen.warning(
            "Nothing was compared with the brokers: every topic is shown as one to create.\n"
        )
    for warning in plan.warnings:
        screen.warning(warning.message)
        screen.out.print(f"  [dim]{escape(warning.remedy)}", soft_wrap=True)
    _changes(plan, screen)
    _sinks(plan, screen)
    for change in plan.queries:
        detail = f"{change.part} was {change.recorded}, and is {change.declared}"
        screen.line(f"[red]! refused[/] [bold]{escape(change.pipeline)}[/]: {escape(detail)}")
        screen.out.print(f"  [dim]{escape(change.remedy)}", soft_wrap=True)
    _routes(plan, screen)


@view.register
def _applied(plan: AppliedPlan, screen: Screen) -> None:
    _changes(plan, screen)
    _sinks(plan, screen)
    done = len(plan.changes) + len(plan.sinks) - len(plan.refused)
    screen.out.print(f"{done} change(s) made, {len(plan.refused)} refused.")


def _changes(plan: Plan, screen: Screen) -> None:
    if not plan.changes:
        screen.out.print("[green]Topics: as declared.")
    for change in plan.changes:
        sign = _SIGNS[change.action]
        name, detail = escape(change.topic), escape(change.detail)
        screen.line(f"{sign} {change.action}[/] [bold]{name}[/]: {detail}")


def _sinks(plan: Plan, screen: Screen) -> None:
    for change in plan.sinks:
        sign = "[red]! refused" if change.is_refused else "[yellow]~ sink"
        name, detail = escape(f"{change.pipeline}, {change.sink}"), escape(change.detail)
        screen.line(f"{sign}[/] [bold]{name}[/]: {detail}")
        if change.remedy:
            screen.out.print(f"  [dim]{escape(change.remedy)}", soft_wrap=True)


def _routes(plan: Plan, screen: Screen) -> None:
    for route in plan.routes:
        way = escape(f"{_listed(route.topics)} -> {route.sink}, {route.guarantee}")
        name = escape(route.pipeline)
        screen.line(f"  [bold]{name}[/] ({way}): {route.path}, {route.why}")
        if route.late_data != LateData.KEEP:
            late = timedelta(seconds=min(route.allowed_lateness_seconds, _MAX_SECONDS))
            screen.line(f"    events {late} behind their partition -> {escape(route.late_data)}")
        if route.unmatched not in {"", "keep"}:
            screen.line(f"    events that found no earlier one -> {escape(route.unmatched)}")
        if route.active or route.standbys:
            standbys = escape(_listed(route.standbys) or "none is warm")
            screen.line(f"    active on {escape(route.active or 'no host')}, standby: {standbys}")
    for worker in plan.workers:
        lanes = f"worker, {worker.lanes} lane(s) over {worker.partitions} partition(s)"
        site = f" at {worker.site}" if worker.site else ""
        name, topics = escape(worker.worker), escape(_listed(worker.topics) + site)
        topics += f", {worker.guarantee}"
        screen.line(f"  [bold]{name}[/] ({topics}): {lanes}; on failure {worker.on_failure}")
    for clients in plan.clients:
        tables = {
            "client": clients.client,
            "consumer": clients.consumer,
            "producer": clients.producer,
        }
        for table, values in tables.items():
            if values:
                shown = ", ".join(f"{setting}={value}" for setting, value in values.items())
                of = escape(f"{clients.of} {clients.name}")
                screen.line(f"  Kafka {table} of [bold]{of}[/]: {escape(shown)}")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
