"""The table ``[schema_registry]`` of headrace.toml."""

from __future__ import annotations

import re
from pathlib import Path

from headrace.settings.document import Table
from headrace.settings.model import SchemaRegistrySettings

# No `@`: a password in the URL would be in messages and logs.
_URL = re.compile(r"https?://[^\s@?#]+")


def schema_registry_settings(
    registry: Table, root: Path, *, is_given: bool
) -> SchemaRegistrySettings | None:
    """Returns where the registry is, if the table is given; problems go to its document."""
    settings = SchemaRegistrySettings(
        url=registry.text("url").rstrip("/"),
        username=registry.text("username"),
        password=registry.secret("password"),
        ca_file=_file(registry, root),
    )
    if is_given and not _URL.fullmatch(settings.url):
        registry.report(
            "url",
            f"schema_registry.url is {settings.url!r}",
            "such as http://registry:8081, the user and password in their own keys",
        )
    if bool(settings.username) != (settings.password is not None):
        registry.report("username", "schema_registry.username and password go together")
    return settings if is_given else None


def _file(registry: Table, root: Path) -> str:
    name = registry.text("ca_file")
    if not name:
        return ""
    file = (root / name).resolve()
    if not file.is_file():
        registry.report("ca_file", f"schema_registry.ca_file: there is no file {name}")
    return str(file)
