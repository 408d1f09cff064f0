"""Event flow: joins, de-duplication, statistics and the ledger, beside other systems.

Each part is a benchmark of its own, and keeps its results when it has ended; name those to run.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from rich.console import Console

from bench.command import exit_code, show
from bench.flow.dedup import Deduplication
from bench.flow.join import Join
from bench.flow.join_latency import JoinLatency
from bench.flow.join_month import JoinMonth
from bench.flow.ledger import Ledger
from bench.flow.part import Part
from bench.flow.stats import StatsCounter

_KINDS: tuple[type[Part], ...] = (
    Join,
    Deduplication,
    StatsCounter,
    Ledger,
    JoinLatency,
    JoinMonth,
)
PARTS = {kind.benchmark: kind for kind in _KINDS}
SYSTEMS = tuple(dict.fromkeys(name for part in PARTS.values() for name in part(1).systems))


def _arguments(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.flow", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="part", help=f"of: {', '.join(PARTS)}; all")
    parser.add_argument("--events", type=int, help="impressions, instead of the part's own number")
    parser.add_argument("--rounds", type=int, help="instead of the part's own number")
    parser.add_argument(
        "--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS), help="default: all of them"
    )
    parser.add_argument("--keep", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument(
        "--quick",
        action="store_true",
        help="few events, one round, nothing kept: does it still run?",
    )
    chosen = parser.parse_args(given)
    if unknown := set(chosen.parts) - PARTS.keys():
        parser.error(f"there is no part {', '.join(sorted(unknown))}; parts: {', '.join(PARTS)}")
    return chosen


def run(name: str, chosen: argparse.Namespace, console: Console) -> bool:
    """Runs a part, shows its table, keeps the results.

    Returns:
        Whether every system did its work.
    """
    kind = PARTS[name]
    part = kind(chosen.events or (kind.quick_count if chosen.quick else kind.count))
    rounds = chosen.rounds or (1 if chosen.quick else kind.rounds)
    systems = [system for system in part.systems if system in chosen.systems]
    console.rule(f"{name}: {part.work()}, {rounds} round(s)")
    findings = part.run(systems, rounds, console)
    is_kept = chosen.keep and not chosen.quick
    settings = part.settings(rounds, findings) if is_kept else None
    show(console, name, part.rows(findings), settings, findings.failed)
    return bool(findings.runs) and not findings.failed


def main(given: Sequence[str]) -> int:
    """Runs the parts one after the other."""
    chosen = _arguments(given)

    def work(console: Console) -> int:
        is_whole = [run(name, chosen, console) for name in chosen.parts or PARTS]
        return 0 if all(is_whole) else 1

    return exit_code(work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
