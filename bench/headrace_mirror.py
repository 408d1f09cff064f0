"""headrace's mirror, as a site would run it: `headrace mirror run`, an instance per thread."""

from __future__ import annotations

import sys
from pathlib import Path

from bench.driver import OnCommit, WriteOnce
from bench.mirror_copies import copy_name, follow_copy
from bench.peers.programs import check_running, end, started
from bench.setup import Setup


def open_headrace(setup: Setup, *, target: str) -> WriteOnce:
    """The function returned runs a mirror of its own; ``target`` is the broker it copies to."""

    def write_once(out: Path, on_commit: OnCommit) -> None:
        for name, text in project(setup, target, out.name).items():
            (out / name).write_text(text)
        command = (sys.executable, "-m", "headrace.cli", "mirror", "run", out.name)
        instances = [started(command, folder=out) for _ in range(setup.threads)]

        def check() -> None:
            for instance in instances:
                check_running(instance)

        try:
            follow_copy(setup, target, out.name, on_commit, check)
        finally:
            for instance in instances:
                end(instance)

    return write_once


def project(setup: Setup, target: str, name: str) -> dict[str, str]:
    """The files of a project with one mirror, by name."""
    copy = f'Topic("{copy_name(name, setup.topic)}", partitions={setup.partitions})'
    return {
        "headrace.toml": (
            '[project]\nname = "bench"\nmodules = ["flow"]\n\n'
            f'[kafka]\nbootstrap_servers = "{target}"\n\n'
            f'[sites.source.kafka]\nbootstrap_servers = "{setup.bootstrap}"\n'
        ),
        "flow.py": (
            '"""The mirror of a run."""\n\n'
            "from headrace import Mirror, Topic\n\n"
            f"copy = {copy}\n"
            f'mirror = Mirror("{name}", source="source", topics={{"{setup.topic}": copy}})\n'
        ),
    }
