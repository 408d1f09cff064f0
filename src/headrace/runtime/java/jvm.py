"""Command lines of the servers' JVMs: small heaps, and all they write in the server's folder."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import ServerStartError
from headrace.runtime.java.installation import Java
from headrace.runtime.servers.process import child_environ

_LOG4J = """\
rootLogger.level = WARN
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ISO8601} %p %c: %m%n
"""


@dataclass(frozen=True)
class Jvm:
    """How to run the main classes of one server.

    Attributes:
        java: the runtime.
        home: the server's folder; its log4j settings and crash reports go there.
        class_path: jars and folders, in order.
    """

    java: Java
    home: Path
    class_path: tuple[Path, ...]

    def server(self, main: str, *arguments: str, heap_mb: int) -> list[str]:
        """The command of a server whose speed matters."""
        return self._command((f"-Xmx{heap_mb}m",), main, arguments)

    def quick(self, main: str, *arguments: str, heap_mb: int = 128) -> list[str]:
        """The command of a tool, or of a server that should start quickly rather than run fast."""
        return self._command((f"-Xmx{heap_mb}m", "-XX:TieredStopAtLevel=1"), main, arguments)

    def _command(self, options: Sequence[str], main: str, arguments: Sequence[str]) -> list[str]:
        self.home.mkdir(parents=True, exist_ok=True)
        log_settings = self.home / "log4j2.properties"
        log_settings.write_text(_LOG4J)
        return [
            *(str(self.java.executable), *options),
            # A serial collector: a few threads and megabytes less, and no slower on such heaps.
            *("-Xms64m", "-XX:+UseSerialGC"),
            f"-XX:ErrorFile={self.home / 'java-crash.log'}",
            f"-Dlog4j2.configurationFile={log_settings.as_uri()}",
            *("-cp", ":".join(map(str, self.class_path)), main, *arguments),
        ]


def run_tools(server: str, commands: Sequence[Sequence[str]]) -> None:
    """Runs commands side by side until all have ended.

    Raises:
        ServerStartError: one of them failed; quotes its output.
    """
    try:
        tools = [
            subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=child_environ(),
                text=True,
                errors="replace",
            )
            for command in commands
        ]
    except OSError as error:
        raise ServerStartError(server, f"it could not be set up: {error}", "") from error
    outputs = [tool.communicate()[0] for tool in tools]
    for tool, output in zip(tools, outputs, strict=True):
        if tool.returncode != 0:
            raise ServerStartError(server, f"it could not be set up: {output[-2000:]}", "")
