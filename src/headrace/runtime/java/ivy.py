"""The Ivy that ships inside pyspark, as a downloader of exactly the artifacts we name.

The settings are our own: Ivy's public Maven resolver without its address, no descriptors (so
nothing is transitive), no ``~/.ivy2`` and no ``~/.m2``, whose half-filled entries break downloads.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path
from xml.sax.saxutils import quoteattr

from headrace.runtime.java.installation import Java
from headrace.runtime.java.spark_jars import spark_jar
from headrace.runtime.servers.process import child_environ

_SETTINGS = """\
<ivysettings>
  <property name="ivy.checksums" value="{checksums}"/>
  <settings defaultResolver="public"/>
  <caches defaultCacheDir={cache}/>
  <resolvers>
    <ibiblio name="public" m2compatible="true" usepoms="{poms}" useMavenMetadata="false"/>
  </resolvers>
</ivysettings>
"""
_MODULE = """\
<ivy-module version="2.0">
  <info organisation="headrace" module="jars"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
{dependencies}
  </dependencies>
</ivy-module>
"""
_DEPENDENCY = '    <dependency org={} name={} rev={} conf="default" transitive="{}"/>'
# Of an unknown host, a refused connection, a download that broke off.
_TROUBLE = ("Host ", " error ", "Exception", "FAILED")
Coordinates = tuple[str, str, str]
"""(organisation, name, revision)."""


def jar_in(work: Path, coordinates: Coordinates) -> Path:
    """Returns where :func:`start` puts the artifact."""
    organisation, name, revision = coordinates
    return work / "cache" / organisation / name / "jars" / f"{name}-{revision}.jar"


def start(
    artifacts: Iterable[Coordinates], java: Java, work: Path, *, transitive: bool = False
) -> subprocess.Popen[bytes]:
    """Starts the download into ``work``; output goes to ``work/ivy.log``."""
    work.mkdir(parents=True, exist_ok=True)
    flag = str(transitive).lower()
    # Whoever knows the SHA-256 already checks that instead.
    checksums = "sha1" if transitive else ""
    cache = quoteattr(str(work / "cache"))
    settings = _SETTINGS.format(cache=cache, poms=flag, checksums=checksums)
    lines = (_DEPENDENCY.format(*map(quoteattr, artifact), flag) for artifact in artifacts)
    (work / "settings.xml").write_text(settings, encoding="utf-8")
    (work / "ivy.xml").write_text(_MODULE.format(dependencies="\n".join(lines)))
    with (work / "ivy.log").open("wb") as log:
        return subprocess.Popen(
            [
                *(str(java.executable), "-Xmx256m", f"-Divy.default.ivy.user.dir={work / 'user'}"),
                *("-jar", str(spark_jar("ivy")), "-settings", str(work / "settings.xml")),
                *("-ivy", str(work / "ivy.xml"), "-confs", "default"),
            ],
            env=child_environ(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )


def why_missing(work: Path, coordinates: Coordinates) -> str:
    """What Ivy's log says about an artifact that did not come."""
    organisation, name, revision = coordinates
    log = (work / "ivy.log").read_text(errors="replace")
    marks = (f"/{name}-{revision}.jar", f"{organisation}#{name};{revision}!")
    lines = (line.strip() for line in log.splitlines() if any(mark in line for mark in marks))
    messages = [line for line in lines if any(word in line for word in _TROUBLE)]
    if messages:
        return "; ".join(dict.fromkeys(messages))
    if f"module not found: {organisation}#{name};{revision}" in log:
        return "the repository does not have it"
    return f"the download ended early: {log[-300:].strip()}"
