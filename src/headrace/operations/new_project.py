"""Writes a new project, a copy of the template beside this module."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import Problem, ProjectError

TEMPLATE = Path(__file__).with_name("template")
_PLACEHOLDER = "{{name}}"
_NAMES = {"gitignore": ".gitignore"}  # under its real name it would hide files of the template


@dataclass(frozen=True)
class NewProject:
    """A new project: its folder, and the names of its files."""

    folder: Path
    files: tuple[str, ...]


def write_project(folder: Path) -> NewProject:
    """Writes the template into ``folder``, which may exist.

    Raises:
        ProjectError: if it would overwrite files; nothing was written.
    """
    # A folder may have any name, a project only what settings allow for `project.name`.
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", folder.resolve().name).strip("-._")
    contents = {
        _NAMES.get(file.name, file.name): file.read_text(encoding="utf-8").replace(
            _PLACEHOLDER, name or "project"
        )
        for file in sorted(TEMPLATE.iterdir())
        if file.is_file()
    }
    existing = [name for name in contents if (folder / name).exists()]
    if existing:
        remedy = "choose another folder; nothing was written"
        raise ProjectError(
            [Problem(str(folder / name), 1, "it exists already", remedy) for name in existing]
        )
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in contents.items():
        (folder / name).write_text(text, encoding="utf-8")
    return NewProject(folder, tuple(contents))
