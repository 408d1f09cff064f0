"""SeaweedFS: an S3 server and an Iceberg REST catalog in one program, from its wheel."""

from __future__ import annotations

import shutil
import sys
import urllib.error
import urllib.request
from datetime import timedelta
from pathlib import Path

from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import NoSuchNamespaceError, RESTError

from headrace.runtime.servers.ports import LOOPBACK, free_ports
from headrace.runtime.servers.process import ServerProcess
from headrace.settings import S3Settings, Secret

ACCESS_KEY = "headrace"
SECRET_KEY = "secret-of-the-tests"
WAREHOUSE = "s3://tables"
_START = timedelta(seconds=120)
_OWN_PORTS = ("master", "filer", "volume")


class SeaweedServer:
    """One table bucket, whose catalog has namespaces and tables; buckets of S3 beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        own = [f"{name}.port{kind}" for name in _OWN_PORTS for kind in ("", ".grpc")]
        names = [*own, "s3.port", "s3.port.grpc", "s3.port.iceberg"]
        self._ports = dict(zip(names, free_ports(len(names)), strict=True))
        self.catalog = f"http://{LOOPBACK}:{self._ports['s3.port.iceberg']}"
        self.settings = S3Settings(
            f"http://{LOOPBACK}:{self._ports['s3.port']}",
            region="us-east-1",
            allow_http=True,
            access_key_id=ACCESS_KEY,
            secret_access_key=Secret(SECRET_KEY),
        )
        self.process = ServerProcess("seaweed", folder / "seaweed")

    @property
    def sinks(self) -> dict[str, Secret]:
        """The table ``[sinks.lake]`` of a project whose Iceberg tables are in the catalog."""
        texts = {
            "catalog": "rest",
            "uri": self.catalog,
            "warehouse": WAREHOUSE,
            "oauth2-server-uri": f"{self.catalog}/v1/oauth/tokens",
            "credential": f"{ACCESS_KEY}:{SECRET_KEY}",
        }
        return {name: Secret(text) for name, text in texts.items()}

    def start(self) -> None:
        """Starts it, and returns once catalog and S3 answer."""
        data = self.folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        off = ("admin.ui", "webdav", "master.telemetry")
        options = [f"-{name}={port}" for name, port in self._ports.items()]
        options += [f"-{name}=false" for name in off]
        options += [f"-dir={data}", f"-ip={LOOPBACK}", f"-ip.bind={LOOPBACK}", "-s3.port.lance=0"]
        options += [f"-tableBucket={WAREHOUSE.removeprefix('s3://')}"]
        keys = [f"AWS_ACCESS_KEY_ID={ACCESS_KEY}", f"AWS_SECRET_ACCESS_KEY={SECRET_KEY}"]
        command = [_program(), f"-logdir={self.folder}", "mini", *options]
        self.process.start([shutil.which("env") or "env", *keys, *command])
        self.process.wait_until(self._answers, _START)

    def stop(self) -> None:
        self.process.kill()

    def _answers(self) -> bool:
        return _is_up(self.settings.endpoint) and _is_up(self.catalog) and self._has_bucket()

    def _has_bucket(self) -> bool:
        """Whether the table bucket is there: it is made a moment after all ports listen."""
        keys = {name: text.reveal() for name, text in self.sinks.items() if name != "catalog"}
        try:
            RestCatalog("tests", **keys).list_namespaces()
        except (NoSuchNamespaceError, OSError, RESTError):
            return False
        return True


def _is_up(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except urllib.error.HTTPError as error:
        return error.code < 500  # it asks for credentials
    except OSError:
        return False


def _program() -> str:
    beside = Path(sys.executable).with_name("weed")
    return str(beside) if beside.exists() else shutil.which("weed") or "weed"
