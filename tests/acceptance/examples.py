"""Examples of this repository as acceptance tests run them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

Import = Callable[[str], ModuleType]


def left_running(project: Path) -> list[str]:
    """Returns servers that still run, and processes that work in a project's folder or name it."""
    command = [str(Path(sys.executable).with_name("headrace")), "status", "--json"]
    status = subprocess.run(command, cwd=project, stdout=subprocess.PIPE, check=True).stdout
    servers = [server["name"] for server in json.loads(status)["servers"] if server["running"]]
    processes = (process for process in Path("/proc").glob("[0-9]*") if _is_of(process, project))
    return servers + [process.name for process in processes]


def _is_of(process: Path, project: Path) -> bool:
    try:
        is_named = os.fsencode(project) in (process / "cmdline").read_bytes()
        return is_named or (process / "cwd").readlink().is_relative_to(project)
    except OSError:  # it has ended, or belongs to another user
        return False
