"""How evenly ways to partition spread what standing queries match: the article's skew.

1.5% of the queries have 90% of the matching events. The same matches are put into partitions in
turn at random, by query, and by query and window; and as what batches add to windows, which is what
headrace sends: one record for a query and a window, however many events match. The skew is what the
fullest partition has, over the mean.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Callable, Sequence

from rich.console import Console

from bench.command import exit_code, show
from bench.results import Row, row
from headrace.model.partitioning import partition_of_key
from headrace.queries.records.matched import window_key

BENCHMARK = "partition-skew"
QUERIES, HOT_SHARE, HOT_EVENTS = 1_000, 0.015, 0.9
MATCHES, QUICK_MATCHES = 1_000_000, 100_000
WINDOWS, MINUTE_US = 30, 60_000_000
BATCHES_A_WINDOW = 12  # one in five seconds
PARTITIONS = 16
ROUNDS = 3

Match = tuple[int, int, int]
"""A query, a window, and a batch of the window."""


def matches(count: int, seed: int) -> list[Match]:
    """Returns what events match, in order of time."""
    chance = random.Random(seed)
    hot = round(QUERIES * HOT_SHARE)
    found = []
    for number in range(count):
        is_hot = chance.random() < HOT_EVENTS
        query = chance.randrange(hot) if is_hot else chance.randrange(hot, QUERIES)
        batch = number * WINDOWS * BATCHES_A_WINDOW // count
        found.append((query, batch // BATCHES_A_WINDOW, batch))
    return found


def by_query(some: Sequence[Match]) -> Counter[int]:
    """Records by partition: all of a query in one."""
    return Counter(partition_of_key(b"q%d" % query, PARTITIONS) for query, _, _ in some)


def by_window(some: Sequence[Match]) -> Counter[int]:
    """Records by partition: those of a query and a window in one."""
    return Counter(_of_window(query, window) for query, window, _ in some)


def added_by_query(some: Sequence[Match]) -> Counter[int]:
    """Records by partition: one for each batch, query and window, by query."""
    return Counter(partition_of_key(b"q%d" % query, PARTITIONS) for query, _, _ in set(some))


def added_by_window(some: Sequence[Match]) -> Counter[int]:
    """Records by partition: one for each batch, query and window, as headrace sends them."""
    return Counter(_of_window(query, window) for query, window, _ in set(some))


def at_random(some: Sequence[Match]) -> Counter[int]:
    """Records by partition: chosen by chance."""
    chance = random.Random(len(some))
    return Counter(chance.randrange(PARTITIONS) for _ in some)


STRATEGIES: dict[str, Callable[[Sequence[Match]], Counter[int]]] = {
    "random": at_random,
    "by-query": by_query,
    "by-query-and-window": by_window,
    "added-by-query": added_by_query,
    "added-by-query-and-window": added_by_window,
}


def _of_window(query: int, window: int) -> int:
    return partition_of_key(window_key(f"q{query}", window * MINUTE_US), PARTITIONS)


def measured(count: int) -> list[Row]:
    """Returns skew and records of each strategy."""
    rounds = [matches(count, seed) for seed in range(ROUNDS)]
    rows = []
    for name, strategy in STRATEGIES.items():
        spread = [strategy(some) for some in rounds]
        skews = [max(each.values()) * PARTITIONS / each.total() for each in spread]
        records = [float(each.total()) for each in spread]
        rows.append(row(BENCHMARK, name, "skew", "x", skews))
        rows.append(row(BENCHMARK, name, "records", "records", records))
    return rows


def main(given: Sequence[str]) -> int:
    """Runs, shows a table, keeps the results unless it was a quick run."""
    parser = argparse.ArgumentParser(prog="python -m bench.partition_skew", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer matches, nothing kept")
    chosen = parser.parse_args(given)

    def work(console: Console) -> int:
        count = QUICK_MATCHES if chosen.quick else MATCHES
        settings = {
            "work": f"{count:,} matches of {QUERIES:,} queries in {WINDOWS} windows",
            "rounds": ROUNDS,
            "partitions": PARTITIONS,
        }
        show(console, BENCHMARK, measured(count), None if chosen.quick else settings)
        return 0

    return exit_code(work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
