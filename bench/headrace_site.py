"""headrace's mirror and merger, as a site would run them: a process per thread."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bench.driver import OnCommit, WriteOnce
from bench.mirror_copies import copy_name, follow_copy, follow_topic
from bench.peers.programs import running
from bench.setup import Setup

ROOT = Path(__file__).resolve().parents[1]
KAFKA = '[project]\nname = "bench"\nmodules = ["flow"]\n\n[kafka]\nbootstrap_servers = "{}"\n'


def open_mirror(setup: Setup, *, target: str) -> WriteOnce:
    """The function returned runs a mirror of its own; ``target`` is the broker it copies to."""

    def write_once(out: Path, on_commit: OnCommit) -> None:
        with _instances(setup, "mirror", out, mirror_project(setup, target, out.name)) as check:
            follow_copy(setup, target, out.name, on_commit, check)

    return write_once


def open_client_copy(setup: Setup, *, target: str) -> WriteOnce:
    """The function returned copies by the client library alone, with a process a thread."""

    def write_once(out: Path, on_commit: OnCommit) -> None:
        copy = copy_name(out.name, setup.topic)
        program = (sys.executable, "-m", "bench.client_copy", setup.bootstrap, target, setup.topic)
        shares = [range(setup.partitions)[n :: setup.threads] for n in range(setup.threads)]
        commands = [(*program, copy, ",".join(map(str, share))) for share in shares]
        with running(commands, ROOT) as check:
            follow_copy(setup, target, out.name, on_commit, check)

    return write_once


def open_merger(setup: Setup) -> WriteOnce:
    """The function returned merges :func:`sources` into a topic of its run."""

    def write_once(out: Path, on_commit: OnCommit) -> None:
        with _instances(setup, "merger", out, merger_project(setup, out.name)) as check:
            topic = copy_name(out.name, setup.topic)
            follow_topic(setup, setup.bootstrap, topic, on_commit, check)

    return write_once


@contextmanager
def _instances(
    setup: Setup, kind: str, out: Path, project: Mapping[str, str]
) -> Iterator[Callable[[], None]]:
    """Gives what raises when one has ended."""
    for name, text in project.items():
        (out / name).write_text(text)
    command = (sys.executable, "-m", "headrace.cli", kind, "run", out.name)
    with running([command] * setup.threads, out) as check:
        yield check


def mirror_project(setup: Setup, target: str, name: str) -> dict[str, str]:
    """The files of a project with one mirror, by name."""
    copy = f'Topic("{copy_name(name, setup.topic)}", partitions={setup.partitions})'
    return {
        "headrace.toml": (
            f"{KAFKA.format(target)}\n[sites.source.kafka]\n"
            f'bootstrap_servers = "{setup.bootstrap}"\n'
        ),
        "flow.py": (
            '"""The mirror of a run."""\n\n'
            "from headrace import Mirror, Topic\n\n"
            f"copy = {copy}\n"
            f'mirror = Mirror("{name}", source="source", topics={{"{setup.topic}": copy}})\n'
        ),
    }


def sources(topic: str) -> tuple[str, str]:
    """The topics that are merged."""
    return f"{topic}.first", f"{topic}.second"


def merger_project(setup: Setup, name: str) -> dict[str, str]:
    """The files of a project with one merger, by name."""
    target = copy_name(name, setup.topic)
    topics = ", ".join(
        f'Topic("{topic}", partitions={setup.partitions})'
        for topic in (*sources(setup.topic), target, late_topic(target))
    )
    return {
        "headrace.toml": KAFKA.format(setup.bootstrap),
        "flow.py": (
            '"""The merger of a run."""\n\n'
            "from headrace import Merger, Topic\n\n"
            f"topics = [{topics}]\n"
            f'merger = Merger("{name}", topics[:2], topics[2], topics[3])\n'
        ),
    }


def late_topic(target: str) -> str:
    """The topic of what can't be put in order."""
    return f"{target}.late"
