"""Views of `size`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from headrace.cli.encoding import merged
from headrace.cli.output import Live, PrintLine
from headrace.cli.screen import Screen, table
from headrace.cli.view import view
from headrace.operations.sizing.needs import Need
from headrace.operations.sizing.sizes import GIB, KIB, MIB, TIB, CatchUp, JoinSize, Size, TopicLoad

if TYPE_CHECKING:
    from headrace.operations.measuring.result import MeasuredDeclaration
    from headrace.operations.sizing.measuring import Consumed, Measurement, OnRun, Produced

_WORDS = {
    "bytes_per_second": "sent by producers",
    "retained_bytes": "disk, one copy",
    "replicated_bytes": "disk, all copies",
    "bytes_per_broker": "disk of each broker",
    "partitions": "partitions",
    "retention_bytes": "retention.bytes of a partition",
    "network_in_bytes_per_second": "network: from producers to brokers",
    "network_copies_bytes_per_second": "network: between brokers",
    "network_out_bytes_per_second": "network: from brokers to readers",
    "network_sent_bytes_per_second": "network: sent by the worker",
    "network_per_broker_bytes_per_second": "network of each broker, both ways",
    "page_cache_bytes_per_broker": "page cache of each broker",
    "cores": "cores, as those measured on",
    "processes": "processes",
    "memory_bytes": "memory of all processes",
}


@dataclass(frozen=True)
class SizeResult:
    """How large a topic must be, and what was measured for it."""

    load: TopicLoad
    size: Size
    catch_up: CatchUp | None
    measured: Measurement | None
    join: JoinSize | None = None
    own: MeasuredDeclaration | None = None
    needs: tuple[Need, ...] | None = None

    def to_json(self) -> dict[str, Any]:
        """Returns the members of load and size in one object, beside the others."""
        more: dict[str, object]
        more = {"catch_up": self.catch_up, "measured": self.measured, "join": self.join}
        if self.own is not None and self.needs is not None:
            needs = {need.name: _members(need) for need in self.needs}
            more |= {"measured_file": self.own, "needs": needs}
        return merged(self.load, self.size, more)


def _members(need: Need) -> dict[str, object]:
    members = {"amount": need.amount, "unit": need.unit, "basis": need.basis}
    return members | ({"assumed": need.assumed} if need.assumed else {})


@view.register
def _sized(result: SizeResult, screen: Screen) -> None:
    if result.measured is not None:
        _measured(result.measured, screen)
    if result.own is not None and result.needs is not None:
        _needs(result.own, result.load, result.needs, screen)
    amounts = table("what", "how much", "unit", right=(1,))
    for row in _rows(result.load, result.size) if result.needs is None else ():
        amounts.add_row(*row)
    for row in (*_catch_up_rows(result.catch_up), *_join_rows(result.join)):
        amounts.add_row(*row)
    if amounts.row_count:
        screen.out.print(amounts)
    for warning in result.size.warnings:
        screen.warning(warning)


def _measured(measured: Measurement, screen: Screen) -> None:
    screen.line(
        f"Measured with {measured.sample_events} events of {escape(measured.sample)}, "
        f"{float(measured.event_bytes):,.0f} bytes on average; "
        f"1 partition, replication {measured.replication}.\n"
    )
    rates = table("one producer, one consumer", "events/s", "KiB/s", right=(1, 2))
    for sent in measured.produced:
        rates.add_row(f"producer: {sent.sending}", *_rates(sent))
    for read in measured.consumed:
        rates.add_row(f"consumer: {read.batch} records a batch", *_rates(read))
    screen.out.print(rates)
    screen.out.print()


def _needs(
    own: MeasuredDeclaration, load: TopicLoad, needs: tuple[Need, ...], screen: Screen
) -> None:
    screen.line(
        f"For {float(load.highest_rate):,g} events/s, with {own.kind} {escape(own.name)} as "
        f"measured at {escape(own.measured_at)}: {own.records_per_second.median:,.0f} records/s "
        f"with one partition, on {escape(own.machine.model)}.\n"
    )
    shown = table("what", "how much", "unit", "basis", "assumed", right=(1,))
    for need in needs:
        amount, unit = _amount(need)
        shown.add_row(_WORDS[need.name], amount, unit, need.basis, need.assumed)
    screen.out.print(shown)
    screen.line("\nNot measured:")
    for part in own.not_measured:
        screen.line(f"- {escape(part)}")


def _amount(need: Need) -> tuple[str, str]:
    if need.name == "retention_bytes":  # a setting, which is copied
        return str(need.amount), "bytes"
    if need.unit == "bytes":
        return _binary(need.amount)
    if need.unit == "bytes/s":
        amount, unit = _binary(need.amount)
        return amount, f"{unit}/s"
    return f"{float(need.amount):,.3g}" if need.unit == "cores" else str(need.amount), need.unit


def _rows(load: TopicLoad, size: Size) -> Iterator[tuple[str, str, str]]:
    days = load.retention.total_seconds() / 86_400
    sent = float(size.bytes_per_second / KIB)
    yield "sent by producers", f"{sent:,.0f}" if sent >= 1 else f"{sent:.2g}", "KiB/s"
    yield f"kept for {days:g} days, one copy", *_binary(size.retained_bytes)
    yield f"kept, {load.replication} copies", *_binary(size.replicated_bytes)
    yield f"on each of {load.brokers} brokers", *_binary(size.bytes_per_broker)
    if size.partitions is not None:
        yield f"for {float(load.events_per_second):,g} events/s", str(size.partitions), "partitions"
    if size.planned_partitions != size.partitions:
        planned = f"for the planned {float(load.highest_rate):,g} events/s"
        yield planned, str(size.planned_partitions), "partitions"


def _catch_up_rows(catch_up: CatchUp | None) -> Iterator[tuple[str, str, str]]:
    if catch_up is None:
        return
    if catch_up.rate_needed is None or catch_up.needs is not None:
        # None: the consumers are no faster than the producers.
        needs = "never" if catch_up.needs is None else _hours(catch_up.needs)
        yield f"to catch up with {_hours(catch_up.lag)}", needs, "h:min"
    if catch_up.rate_needed is not None and catch_up.within is not None:
        what = f"to catch up with {_hours(catch_up.lag)} within {_hours(catch_up.within)}"
        yield what, f"{float(catch_up.rate_needed):,.0f}", "events/s"


def _join_rows(join: JoinSize | None) -> Iterator[tuple[str, str, str]]:
    if join is None:
        return
    yield "kept by the join", f"{float(join.kept_events):,.0f}", "events"
    yield "of these, in the checkpoint", *_binary(join.checkpoint_bytes)
    yield "and on the machines that join", *_binary(join.index_bytes)
    if join.waiting_events:
        yield "waiting at most", f"{float(join.waiting_events):,.0f}", "events"
        yield "read and written by each batch", *_binary(join.waiting_bytes)
    yield "memory of each task that joins", *_binary(Fraction(join.cache_bytes))
    yield "and for fingerprints, divided by the partitions", *_binary(join.fingerprint_bytes)


def _binary(size: Fraction) -> tuple[str, str]:
    """Returns a size in the largest unit of which there is at least one."""
    for unit, name in ((TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB")):
        if size >= unit:
            return f"{float(size / unit):,.2f}", name
    return f"{float(size / KIB):,.2f}", "KiB"


def _rates(run: Produced | Consumed) -> tuple[str, str]:
    return f"{run.events_per_second:,}", f"{run.bytes_per_second / KIB:,.0f}"


def _hours(duration: timedelta) -> str:
    minutes = round(duration.total_seconds() / 60)
    return f"{minutes // 60}:{minutes % 60:02}"


@contextmanager
def _on_screen(screen: Screen) -> Iterator[OnRun]:
    def on_run(done: int, runs: int, name: str) -> None:
        screen.err.print(f"[dim]{done + 1}/{runs} {escape(name)}", soft_wrap=True)

    yield on_run


@contextmanager
def _silent(_print_line: PrintLine) -> Iterator[OnRun]:
    yield lambda *_: None


measuring = Live(_on_screen, _silent)
