"""A base install runs what asks for no extra: none of their modules is imported on the way."""

from __future__ import annotations

import subprocess
import sys

FLOW = """
from datetime import datetime
from headrace import Lake, Pipeline, Topic, worker

class Click:
    event_id: str
    at: datetime

clicks = Topic("clicks", event=Click, event_time="at", partitions=1)
clicks_to_lake = Pipeline("clicks-to-lake", clicks, Lake("clicks", partition_by=("day",)))

@worker(topic=clicks, name="copy")
async def copy(record, send):
    send("copies", record.value)
"""
PROGRAM = """
import importlib, pkgutil, sys
from headrace.runtime.extras import MODULES

class Missing:
    names = {"numpy"}.union(*MODULES.values())

    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
import headrace
# Views of commands that ask for an extra.
EXTRAS = ("operations.reconciling", "pipelines.reprocessing", "queries")
for module in pkgutil.walk_packages(headrace.__path__, "headrace."):
    owner, _, name = module.name.removeprefix("headrace.").rpartition(".")
    if name == "views" and not owner.startswith(EXTRAS):
        importlib.import_module(module.name)
from headrace.cli.main import main
main()
"""


def test_a_project_that_has_pipelines_is_checked_without_any_extra(tmp_path):
    (tmp_path / "flow.py").write_text(FLOW)
    (tmp_path / "headrace.toml").write_text('[project]\nname = "bare"\nmodules = ["flow"]\n')
    command = [sys.executable, "-c", PROGRAM, "check", "--project", tmp_path]
    done = subprocess.run(command, capture_output=True, check=False, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 pipeline(s), 1 worker(s)" in done.stdout
