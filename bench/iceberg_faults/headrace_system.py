"""headrace: a project with one pipeline, run by the command, and a copy of it elsewhere."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from bench.iceberg_faults.catalog import NAME, NAMESPACE, await_, python_uri
from bench.iceberg_faults.processes import Member
from bench.iceberg_faults.system import System
from headrace.runtime.files.json_files import read_json

CHECKPOINT = "checkpoint-deleted"
MEMBERS = 2
PIPELINE = "to-iceberg"
ROOT = Path(__file__).resolve().parents[2]
_STATUS = f".headrace/status/{PIPELINE}.json"
_START_SECONDS = 1200
_FLOW = """\
from datetime import timedelta

from bench.events import impressions_topic
from headrace import BatchLimits, Iceberg, Lake, Pipeline

events = impressions_topic("{topic}", 4)
to_iceberg = Pipeline(
    "{pipeline}",
    source=events,
    sink=Lake("{topic}", partition_by=["hour"], format=Iceberg("{namespace}")),
    limits=BatchLimits(max_wait=timedelta(seconds=3)),
)
"""
_SETTINGS = """\
[project]
name = "{topic}"
modules = ["flow"]
lake = "{lake}"

[kafka]
bootstrap_servers = "{bootstrap}"

[spark]
master = "local[1]"

[spark.config]
"spark.driver.memory" = "{heap_mb}m"
"spark.driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1"

[sinks.lake]
catalog = "sql"
name = "{name}"
uri = "{uri}"
warehouse = "{warehouse}"
"""


class Headrace(System):
    """Its second process is that of another machine: another folder, with a checkpoint of its own.

    On one machine a second one of the same folder is refused at its start.
    """

    settings: ClassVar[Mapping[str, str]] = {"limits": "BatchLimits(max_wait=timedelta(seconds=3))"}
    states: ClassVar[Mapping[str, str]] = {CHECKPOINT: "the checkpoint"}

    @cached_property
    def members(self) -> Sequence[Member]:
        """Its drivers."""
        return [self._member(number) for number in range(MEMBERS)]

    def _member(self, number: int) -> Member:
        home = self._home(number)
        home.mkdir(parents=True)
        place, catalog = self.place, self.place.catalog
        flow = _FLOW.format(pipeline=PIPELINE, topic=place.name, namespace=NAMESPACE)
        (home / "flow.py").write_text(flow)
        settings = _SETTINGS.format(
            topic=place.name,
            lake=home / "lake",
            bootstrap=place.broker.bootstrap,
            heap_mb=place.heap_mb,
            name=NAME,
            uri=python_uri(place.database),
            warehouse=catalog.warehouse,
        )
        (home / "headrace.toml").write_text(settings)
        command = [*self._command("run"), "--project", str(home)]
        return Member(f"driver {number}", command, home / "log", ROOT, place.java.environ())

    def start(self, members: int) -> None:
        """Starts drivers: one, however many should share the work, as a pipeline has one."""
        del members
        self.members[0].start()
        place = self.place
        await_(lambda: place.catalog.version(place.name), _START_SECONDS, "headrace's table")

    def join(self) -> None:
        """Starts the second driver."""
        (self._home(1) / _STATUS).unlink(missing_ok=True)
        self.members[1].start()

    def has_joined(self) -> bool:
        """Its status says that it runs, or has failed."""
        state = read_json(self._home(1) / _STATUS, lambda status: status["state"])
        return state not in {None, "starting"}

    def take_over(self, frozen: Member) -> None:
        """Starts the other driver, on the other machine."""
        next(member for member in self.members if member is not frozen).start()

    def lose(self, state: str) -> None:
        """Deletes the folder of the lake, which has the checkpoint; the table is elsewhere."""
        del state
        shutil.rmtree(self._home(0) / "lake")

    @property
    def group(self) -> str:
        """That of the pipeline."""
        return f"headrace.{PIPELINE}"

    def tend(self) -> None:
        """Starts drivers that have ended."""
        self.restart_ended()

    def _command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "headrace.cli", *arguments]

    def _home(self, number: int) -> Path:
        return self.place.folder / f"project-{number}"
