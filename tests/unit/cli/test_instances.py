"""How instances are shown in `status`."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console
from tests.unit.service.samples import EMITTER, MERGER, MIRROR

from headrace.links.copying import views as mirrors
from headrace.links.merger import views as mergers
from headrace.queries.emit import views as matched_events


def shown(group):
    out = io.StringIO()
    Console(file=out, width=200).print(group)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_a_mirror_is_a_row_and_its_other_counts_and_reasons_are_below():
    [title, row, *remarks] = shown(mirrors.summary([replace(MIRROR, reason="waits for waw")]))
    assert title.split() == [
        *("mirror", "instance", "state"),
        *("records", "partitions", "lag", "refused", "restarts"),
    ]
    assert row.split() == ["warsaw", "host-1", "running", "100", "2", "7", "1", "1"]
    assert remarks == [
        "warsaw: waits for waw",
        "warsaw: records were deleted",
        "warsaw: 2,000 value bytes, 3 loops skipped",
    ]


def test_counts_of_zero_are_not_shown():
    assert len(shown(mirrors.summary([type(MIRROR)("warsaw", instance="host-1")]))) == 2


def test_a_merger_says_what_it_waits_for():
    [_, row, *remarks] = shown(mergers.summary([MERGER]))
    assert row.split() == ["clicks", "host-1", "running", "100", "3", "7", "1", "1", "1"]
    assert any("waits for par.clicks/0" in remark for remark in remarks)


def test_a_process_that_sends_matched_events_is_a_row():
    [title, row] = shown(matched_events.summary([EMITTER]))
    assert title.startswith("matched events ")
    assert row.split() == ["ads.clicks", "host-1", "running", "2", "7", "3", "0", "0"]
