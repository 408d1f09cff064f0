"""What the page about migrating shows of workers is valid."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.workers.rules import worker_faults


def test_the_workers_of_the_page_have_no_faults(blocks: Callable[[str], list]) -> None:
    group, whole = [block.text for block in blocks("python") if block.page == "docs/migrating.md"]
    names: dict[str, Any] = {}
    exec(whole, names)
    assert list(worker_faults(names["charge"])) == []
    exec(group, names)
    assert list(worker_faults(names["charge"])) == []
    assert names["charge"].consumer_group == "billing"
