"""What the commands of all benchmarks do alike."""

from __future__ import annotations

import signal
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from rich.console import Console

from bench import report
from bench.driver import OutputWrongError, SystemFailedError
from bench.keep import keep
from bench.results import Row


def exit_code(work: Callable[[Console], int]) -> int:
    """Of ``work``, which Ctrl-C and SIGTERM stop, and which a system that failed ends."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    console = Console()
    try:
        return work(console)
    except KeyboardInterrupt:
        console.print("stopped; nothing was kept")
        return 130
    except (SystemFailedError, OutputWrongError) as error:
        console.print(f"failed: {error}", style="red", markup=False, highlight=False)
        return 1


def in_turn(systems: Sequence[str], rounds: int) -> Iterator[tuple[int, str]]:
    """(round, system): every system once a round, each round begun by another one."""
    for number in range(rounds):
        first = number % len(systems)
        for system in (*systems[first:], *systems[:first]):
            yield number, system


def show(
    console: Console,
    benchmark: str,
    rows: Sequence[Row],
    settings: Mapping[str, object] | None,
    failed: Collection[tuple[str, int]] = (),
) -> None:
    """As a table. Keeps them with ``settings``, what they were measured with; without, not."""
    if rows:
        console.print(report.table(benchmark, rows))
        if settings is not None:
            keep(benchmark, rows, settings, failed=failed)
