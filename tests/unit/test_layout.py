"""What a module may do is said by the name of its file, and no folder is too large to be read."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src" / "headrace"
MODULES = sorted(path.relative_to(SOURCE) for path in SOURCE.rglob("*.py"))
ROOMS = sorted({module.parts[0] for module in MODULES if len(module.parts) > 1})
BASE = tuple(
    f"headrace.{name}" for name in ("__version__", "cli", "errors", "model", "runtime", "settings")
)
SHOWN_BY = {"commands", "views", "progress_view"}


def imports_of(module: Path, *, at_top: bool) -> Iterator[str]:
    tree = ast.parse((SOURCE / module).read_text(encoding="utf-8"))
    for node in tree.body if at_top else ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{imported.name}" for imported in node.names)


def test_only_commands_and_views_know_the_command_line() -> None:
    others = [
        module
        for module in MODULES
        if module.parts[0] not in {"cli", "__main__.py"}
        and module.stem not in SHOWN_BY
        and any(name.startswith("headrace.cli.") for name in imports_of(module, at_top=False))
    ]
    assert not others


def test_commands_import_what_they_call_when_they_are_called() -> None:
    commands = [module for module in MODULES if module.stem == "commands"]
    assert len(commands) > 5
    for module in commands:
        own = [name for name in imports_of(module, at_top=True) if name.startswith("headrace.")]
        called = [name for name in own if not name.startswith(BASE) and ".commands" not in name]
        assert not called, f"{module} imports {called} at its top"


@pytest.mark.parametrize("room", ROOMS)
def test_no_folder_has_more_than_fifteen_modules(room: str) -> None:
    folders = {SOURCE / module.parent for module in MODULES if module.is_relative_to(room)}
    sizes = {str(folder.relative_to(SOURCE)): len([*folder.glob("*.py")]) - 1 for folder in folders}
    assert not {folder: size for folder, size in sizes.items() if size > 15}
