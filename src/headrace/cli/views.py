"""View of `version`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.cli.screen import Screen
from headrace.cli.view import view


@dataclass(frozen=True)
class Versions:
    """Versions by name."""

    versions: Mapping[str, str]

    def to_json(self) -> Mapping[str, str]:
        """Returns them by name."""
        return self.versions


@view.register
def _versions(result: Versions, screen: Screen) -> None:
    for name, version in result.versions.items():
        screen.out.print(f"{name} {version}", highlight=False)
