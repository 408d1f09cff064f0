"""Commands that ask or register import what they need: no other of the packages that take time."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Callable

import pytest

from headrace.runtime.extras import MODULES

FLOW = """
from datetime import datetime
from headrace import Lake, MatchQueries, Pipeline, StandingQueries, Topic

class Click:
    event_id: str
    at: datetime

clicks = Topic("clicks-{suffix}", event=Click, event_time="at", partitions=1)
clicks_to_lake = Pipeline("clicks-to-lake", clicks, Lake("clicks", partition_by=("day",)))
ads = StandingQueries("ads-{suffix}", partitions=1)
match_clicks = Pipeline("match-clicks", clicks, MatchQueries(ads))
"""
FILE = """
[project]
name = "{suffix}"
modules = ["flow"]

[kafka]
bootstrap_servers = "{servers}"
"""
PROGRAM = """
import sys
from headrace.cli import main
try:
    main(sys.argv[1:])
finally:
    print(*sys.modules, file=sys.stderr)
"""
SLOW = {"asyncio", "confluent_kafka", "msgspec", "numpy", "rich", "uvloop"}.union(*MODULES.values())
CLIENT = {"asyncio", "confluent_kafka"}  # asyncio is imported by the client library
Imported = Callable[..., set[str]]


@pytest.fixture(scope="module")
def imported(broker, tmp_path_factory: pytest.TempPathFactory) -> Imported:
    """Returns the modules that a command has imported at its end, in a project on the broker."""
    folder, suffix = tmp_path_factory.mktemp("project"), uuid.uuid4().hex[:8]
    (folder / "flow.py").write_text(FLOW.format(suffix=suffix))
    file = FILE.format(suffix=suffix, servers=broker.bootstrap_servers)
    (folder / "headrace.toml").write_text(file)

    def modules(*arguments: str) -> set[str]:
        command = [sys.executable, "-c", PROGRAM, *(part.format(suffix) for part in arguments)]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return set(done.stderr.splitlines()[-1].split())

    modules("apply")
    return modules


@pytest.mark.parametrize(
    ("command", "slow", "max_own"),
    [
        ("--version", set(), 25),
        ("--help", set(), 99),
        ("query register --help", set(), 46),
        ("measure --help", set(), 45),
        ("version", {"rich"}, 35),
        ("check", {"msgspec", "rich"}, 155),
        ("status", {"msgspec", "rich"} | CLIENT, 211),
        ("dead-letters list", {"msgspec", "rich"} | CLIENT, 205),
        ("query list", {"msgspec", "rich", "sqlglot"} | CLIENT, 230),
        (
            "query register SELECT_count(*)_FROM_clicks-{}",
            {"datasketches", "msgspec", "numpy", "pyarrow", "rich", "sqlglot"} | CLIENT,
            255,
        ),
    ],
)
def test_a_command_imports_what_it_needs(
    imported: Imported, command: str, slow: set[str], max_own: int
) -> None:
    modules = imported(*(part.replace("_", " ") for part in command.split()))
    assert {name for name in modules if name in SLOW} == slow
    own = sorted(name for name in modules if name.partition(".")[0] == "headrace")
    assert len(own) <= max_own, own


def test_a_module_of_a_project_imports_what_it_names() -> None:
    program = "from headrace import Topic, Pipeline, Lake; import sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True)
    modules = set(done.stdout.decode().split())
    assert not SLOW & modules
    assert len([name for name in modules if name.partition(".")[0] == "headrace"]) <= 45
