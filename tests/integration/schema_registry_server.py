"""A real schema registry, Apicurio, with Confluent's API: fetched once per user, kept in memory."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tarfile
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

from tests.waiting import wait_for

from headrace.runtime.files.cache import cache_folder
from headrace.runtime.files.file_locks import exclusive
from headrace.runtime.java.installation import find_java
from headrace.runtime.java.spark_jars import spark_jar
from headrace.runtime.servers.ports import free_ports
from headrace.settings import SchemaRegistrySettings

VERSION = "3.0.9"
SHA256 = "2b28181501a20cbf6efcd77f9b7153908fc01f3d3a7c32024c0bd9e1b04c8a43"
_SETTINGS = """\
<ivysettings>
  <settings defaultResolver="public"/>
  <caches defaultCacheDir="{work}/cache"/>
  <resolvers>
    <ibiblio name="public" m2compatible="true" usepoms="false" useMavenMetadata="false"/>
  </resolvers>
</ivysettings>
"""
_MODULE = f"""\
<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="headrace" module="registry"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    <dependency org="io.apicurio" name="apicurio-registry-app" rev="{VERSION}" transitive="false">
      <artifact name="apicurio-registry-app" type="tar.gz" ext="tar.gz" m:classifier="all"/>
    </dependency>
  </dependencies>
</ivy-module>
"""


class SchemaRegistryServer:
    """Keeps nothing on disk: what is started again is empty."""

    def __init__(self, folder: Path) -> None:
        self.port, self._management = free_ports(2)
        url = f"http://127.0.0.1:{self.port}/apis/ccompat/v7"
        self.settings = SchemaRegistrySettings(url)
        self._folder = folder
        self._process: subprocess.Popen | None = None

    def start(self) -> None:
        jar = f"apicurio-registry-app-{VERSION}-runner.jar"
        command = [find_java(os.environ).executable, "-Xmx512m", "-Dquarkus.http.host=127.0.0.1"]
        command += [f"-Dquarkus.http.port={self.port}", "-Dquarkus.management.host=127.0.0.1"]
        command += [f"-Dquarkus.management.port={self._management}", "-jar", _programs() / jar]
        log = (self._folder / "registry.log").open("wb")
        with log:
            self._process = subprocess.Popen(command, cwd=self._folder, stdout=log, stderr=log)
        wait_for(self._is_ready, (self._folder / "registry.log").read_text)

    def _is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._folder / "registry.log").read_text()
        return self._answers()

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.settings.url}/subjects", timeout=5) as answer:
                return answer.status == 200
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False


def _programs() -> Path:
    """The unpacked distribution, in the per-user cache."""
    target = cache_folder(os.environ) / "apicurio" / VERSION
    target.parent.mkdir(parents=True, exist_ok=True)
    with exclusive(target.parent / "lock"):
        if not target.exists():
            work = Path(tempfile.mkdtemp(dir=target.parent))
            try:
                archive = _fetch(work)
                digest = hashlib.sha256(archive.read_bytes()).hexdigest()
                assert digest == SHA256
                with tarfile.open(archive) as content:
                    content.extractall(work / "unpacked", filter="data")
                (work / "unpacked").rename(target)
            finally:
                shutil.rmtree(work)
    return target


def _fetch(work: Path) -> Path:
    (work / "settings.xml").write_text(_SETTINGS.format(work=work))
    (work / "ivy.xml").write_text(_MODULE)
    command = [find_java(os.environ).executable, f"-Divy.default.ivy.user.dir={work / 'user'}"]
    command += ["-jar", spark_jar("ivy"), "-settings", work / "settings.xml"]
    command += ["-ivy", work / "ivy.xml", "-confs", "default"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    (archive,) = (work / "cache").rglob("*.tar.gz")
    return archive
