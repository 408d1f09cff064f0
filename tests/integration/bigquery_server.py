"""A stand-in for BigQuery as a process: local-bigquery, with REST and the Storage Write API.

It needs another Python and other versions of libraries than headrace, so it has an environment of
its own in the cache folder, by the hashes of ``bigquery.lock.txt``.
``python -m tests.integration.bigquery_server`` writes that file.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import requests
from tests.integration.server_process import ServerProcess
from tests.waiting import LIMIT_SECONDS, wait_for

from headrace.runtime.files.cache import cache_folder
from headrace.runtime.servers.ports import free_ports
from headrace.settings import Secret

LOCK = Path(__file__).with_name("bigquery.lock.txt")
PID_FILE = "bigquery.pid"
PROJECT, DATASET = "tests", "ads"
PYTHON = "3.13"
# DuckDB 1.5.5: for later ones no index has these extensions, which DuckDB would fetch by itself.
REQUIREMENTS = """\
local-bigquery==0.3.2
duckdb==1.5.5
duckdb-extensions==1.5.5
duckdb-extension-ducklake==1.5.5
duckdb-extension-icu==1.5.5
duckdb-extension-spatial==1.5.5
pytz
"""
_EXTENSIONS = """
from duckdb_extensions import import_extension
for name in ("icu", "ducklake", "spatial"):
    import_extension(name)
"""
_UV = Path(sys.executable).with_name("uv")


class BigQueryServer(ServerProcess):
    """Tables are on disk, streams in memory: one that is killed has forgotten its streams."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, PID_FILE)
        self.port, self.storage_port = free_ports(2)

    @property
    def settings(self) -> dict[str, Secret]:
        """The table ``[sinks.bigquery]`` of headrace.toml."""
        return {
            "project": Secret(PROJECT),
            "dataset": Secret(DATASET),
            "endpoint": Secret(f"http://127.0.0.1:{self.port}"),
            "storage_endpoint": Secret(f"http://127.0.0.1:{self.storage_port}"),
        }

    def start(self) -> None:
        home = _environment()
        command = [home / "bin" / "local-bigquery", "--host", "127.0.0.1", "--project", PROJECT]
        command += ["--port", str(self.port), "--grpc-port", str(self.storage_port)]
        command += ["--data-dir", self.folder / "tables", "serve"]
        with (self.folder / "bigquery.log").open("ab") as log:
            environ = {**os.environ, "HOME": str(home)}
            self._process = subprocess.Popen(
                command, env=environ, stdout=log, stderr=log, start_new_session=True
            )
        (self.folder / PID_FILE).write_text(str(self._process.pid))
        wait_for(self._is_ready, "BigQuery")

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """What the REST interface answers."""
        url = f"http://127.0.0.1:{self.port}/bigquery/v2/projects/{PROJECT}{path}"
        answer = requests.request(method, url, json=body, timeout=LIMIT_SECONDS)
        answer.raise_for_status()
        return answer.json() if answer.content else None

    def query(self, sql: str) -> list[list[Any]]:
        """Rows of a query: each value a text, a list, or a dictionary of a STRUCT's position."""
        body = {"query": sql, "useLegacySql": False, "defaultDataset": {"datasetId": DATASET}}
        answer = self.request("POST", "/queries", body)
        return [[cell["v"] for cell in row["f"]] for row in answer.get("rows", [])]

    def drop_tables(self) -> None:
        """Deletes all tables: the time of each request grows with the number of tables."""
        folder = f"/datasets/{DATASET}/tables"
        for table in self.request("GET", folder).get("tables", []):
            self.request("DELETE", f"{folder}/{table['tableReference']['tableId']}")

    def _is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.folder / "bigquery.log").read_text()
        try:
            known = self.request("GET", "/datasets").get("datasets", [])
        except requests.ConnectionError:
            return False
        if DATASET not in {dataset["datasetReference"]["datasetId"] for dataset in known}:
            self.request("POST", "/datasets", {"datasetReference": {"datasetId": DATASET}})
        return True


def _environment() -> Path:
    """Returns the environment of the server, which is made where it is missing."""
    digest = hashlib.blake2b(LOCK.read_bytes(), digest_size=6).hexdigest()
    folder = cache_folder(os.environ) / f"bigquery-{digest}"
    if not folder.exists():
        made = folder.with_name(f"{folder.name}.{os.getpid()}.{time.monotonic_ns()}")
        _uv("venv", "--relocatable", "--python", _python(), str(made))
        python = str(made / "bin" / "python")
        _uv("pip", "install", "--python", python, "--require-hashes", "--requirement", str(LOCK))
        environ = {**os.environ, "HOME": str(made)}
        subprocess.run([python, "-c", _EXTENSIONS], check=True, env=environ)
        try:
            made.rename(folder)
        except OSError:  # another process was faster
            shutil.rmtree(made)
    return folder


def _python() -> str:
    """Returns an interpreter that pyenv has, or the version, for which uv looks."""
    folders = (Path(sys.base_prefix).parent, Path.home() / ".pyenv" / "versions")
    known = [path for folder in folders for path in folder.glob(f"{PYTHON}.*/bin/python")]
    return str(known[-1]) if known else PYTHON


def _uv(*words: str) -> None:
    subprocess.run([_UV, "--quiet", *words], check=True)


if __name__ == "__main__":
    compiling = [_UV, "pip", "compile", "--quiet", "--generate-hashes", "--no-header"]
    compiling += ["--python-version", PYTHON, "--no-annotate", "--output-file", LOCK, "-"]
    subprocess.run(compiling, input=REQUIREMENTS, text=True, check=True)
