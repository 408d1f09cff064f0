"""headrace's command line, run in this folder as a user runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import postgres
from traffic import Project

FOLDER = Path(__file__).resolve().parent
STATE = FOLDER / ".headrace"
HEADRACE = str(Path(sys.executable).with_name("headrace"))
SOURCE = "api-1"
GRACE_SECONDS = 60


def run(*arguments: str) -> None:
    """A command that shows what it does.

    It is a process group of its own, so that Ctrl-C reaches it once, through us.

    Raises:
        CalledProcessError: it failed.
    """
    process = subprocess.Popen([HEADRACE, *arguments], cwd=FOLDER, process_group=0)
    try:
        code = process.wait()
    finally:
        _end(process)
    if code:
        raise subprocess.CalledProcessError(code, process.args)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Lets a command stop in order; a second Ctrl-C, or a minute, and it is killed."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(GRACE_SECONDS)
    finally:
        process.kill()


def answer(*arguments: str, **variables: str) -> Any:
    """What a command says in JSON; with these environment variables beside ours.

    Raises:
        CalledProcessError: it failed.
    """
    run = subprocess.run(
        [HEADRACE, *arguments, "--json"],
        cwd=FOLDER,
        env=os.environ | variables,
        stdout=subprocess.PIPE,
        check=True,
        process_group=0,
    )
    return json.loads(run.stdout)


def stop() -> None:
    """Stops the project's servers, where they were ever started."""
    if STATE.exists():
        subprocess.run([HEADRACE, "down"], cwd=FOLDER, stdout=subprocess.DEVNULL, check=False)


def ingest_address() -> str:
    """Returns the address on which the HTTP service listens."""
    servers = answer("status")["servers"]
    return next(str(server["address"]) for server in servers if server["name"] == "ingest")


def new_token(project: Project, *limits: str) -> str:
    """The text of a new access token."""
    owner = ("--project-id", str(project.id), "--account", project.account)
    scopes = ("--scope", "write", "--scope", "metrics")
    return str(answer("tokens", "create", project.name, *owner, *scopes, *limits)["token"])


def load(folder: str, *into: str, url: str = "") -> Any:
    """Loads offline files into the project's topics, or into the database of ``url``.

    Its password goes through the environment, where other users don't see it.
    """
    if url:
        into = ("--postgres", f"${{{postgres.VARIABLE}}}", "--into", "raw_item")
    command = ("load-offline-files", folder, "--source", SOURCE, *into)
    return answer(*command, **({postgres.VARIABLE: url} if url else {}))


def dead_letters(topic: str) -> dict[str, int]:
    """Reasons of a topic's dead letters, and how many of each."""
    topics = answer("dead-letters", "list")["topics"]
    return next((dict(counts["reasons"]) for counts in topics if counts["topic"] == topic), {})
