"""Views of `measure`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.markup import escape

from headrace.cli.output import Live, PrintLine
from headrace.cli.screen import Screen, table
from headrace.cli.view import view
from headrace.operations.measuring.result import MeasuredDeclaration, RoundSpread
from headrace.operations.measuring.rounds import OnStep
from headrace.operations.measuring.sample import FEW

_KIB, _MIB = 1024, 1024**2
_WHOLE_FROM = 100


@view.register
def _measured(result: MeasuredDeclaration, screen: Screen) -> None:
    sample, machine = result.sample, result.machine
    screen.line(
        f"{result.kind} {escape(result.name)}, one partition, with {sample.records:,} records of "
        f"{escape(sample.source)}, {sample.mean_bytes:,.0f} bytes on average"
    )
    screen.line(f"{machine.cores} cores, {escape(machine.model)}; {len(result.rounds)} rounds\n")
    shown = table("what", "median", "low", "high", "unit", right=(1, 2, 3))
    for name, median, low, high, unit in _rows(result):
        shown.add_row(name, median, low, high, unit)
    screen.out.print(shown)
    screen.line("\nNot measured:")
    for part in result.not_measured:
        screen.line(f"- {escape(part)}")
    for warning in _warnings(result):
        screen.warning(warning)


def _rows(result: MeasuredDeclaration) -> Iterator[tuple[str, str, str, str, str]]:
    yield "records", *_spread(result.records_per_second), "records/s"
    yield "CPU of a million records", *_spread(result.cpu_seconds_per_million), "s"
    yield "in, before compression", _number(result.bytes_in_per_second / _KIB), "", "", "KiB/s"
    yield "out, before compression", _number(result.bytes_out_per_second / _KIB), "", "", "KiB/s"
    yield "memory at most", _number(result.peak_memory_bytes / _MIB), "", "", "MiB"
    if result.peak_worker_bytes:
        yield "of it, a Python worker", _number(result.peak_worker_bytes / _MIB), "", "", "MiB"
    if result.user is not None:
        yield "your code, a call", _number(result.user.seconds_per_call * 1e6), "", "", "us"
        yield "your code, of the CPU", _number(result.user.cpu_share * 100), "", "", "%"
    if result.failed_share:
        yield "failed", _number(result.failed_share * 100), "", "", "%"


def _warnings(result: MeasuredDeclaration) -> Iterator[str]:
    if result.failed_share:
        yield (
            f"{result.failed_share:.1%} of the records failed, which may take more or less time "
            "than to process them: see the log"
        )
    if result.sample.records < FEW:
        yield f"a sample of {result.sample.records} records says little: --records, or --from FILE"


def _spread(spread: RoundSpread) -> tuple[str, str, str]:
    return _number(spread.median), _number(spread.low), _number(spread.high)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= _WHOLE_FROM else f"{value:.3g}"


@contextmanager
def _on_screen(screen: Screen) -> Iterator[OnStep]:
    def on_step(done: int, steps: int, name: str) -> None:
        screen.err.print(f"[dim]{done + 1}/{steps} {escape(name)}", soft_wrap=True)

    yield on_step


@contextmanager
def _silent(_print_line: PrintLine) -> Iterator[OnStep]:
    yield lambda *_: None


measuring = Live(_on_screen, _silent)
