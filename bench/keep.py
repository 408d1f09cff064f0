"""Keeping what a benchmark found: in results.json, on its page and in the chart."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence

from bench import chart, report, results
from bench.machine import machine, versions
from headrace.runtime.java.installation import find_java


def keep(
    benchmark: str,
    rows: Sequence[results.Row],
    settings: Mapping[str, object],
    *,
    failed: Collection[tuple[str, int]] = (),
) -> None:
    """Replaces what these rows are figures of, and tells where they were measured.

    ``failed`` are (system, threads or lanes) that have no figures any more.
    """
    context = {
        "machine": machine(),
        "versions": versions(find_java(os.environ)),
        "settings": settings,
    }
    known = results.without(results.read(), benchmark, failed)
    document = results.merge(known, benchmark, context, rows)
    results.write(document)
    report.write_page(document)
    chart.write(document)
