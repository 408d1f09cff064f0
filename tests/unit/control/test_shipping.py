"""Only the project's own modules travel with a job."""

import sys
import sysconfig
from pathlib import Path
from types import ModuleType

import pytest

from headrace.control.shipping import own_modules


def module(name: str, file: Path | None) -> ModuleType:
    made = ModuleType(name)
    made.__file__ = None if file is None else str(file)
    return made


@pytest.mark.parametrize("file", ["flow.py", "tasks/enrich.py", "src/shop/__init__.py"])
def test_modules_of_the_project_travel(tmp_path, file):
    own = module("flow", tmp_path / file)
    assert own_modules(tmp_path, [own]) == [own]


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("numpy", ".venv/lib/python3.11/site-packages/numpy/__init__.py"),
        ("numpy", "vendor/dist-packages/numpy/__init__.py"),
        ("headrace.model", "headrace/src/headrace/model/__init__.py"),
        ("sitecustomize", ".venv/sitecustomize.py"),
        ("elsewhere", "../elsewhere.py"),
        ("builtin", None),
    ],
)
def test_what_is_installed_does_not_although_it_is_in_the_folder(tmp_path, monkeypatch, name, file):
    monkeypatch.setattr(sys, "prefix", str(tmp_path / ".venv"))
    found = module(name, None if file is None else (tmp_path / file).resolve())
    assert own_modules(tmp_path, [found]) == []


def test_an_environment_around_the_project_hides_nothing_of_it(tmp_path, monkeypatch):
    """Images have projects in /usr/src/app, and their Python in /usr."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    root = tmp_path / "src" / "app"
    own = module("flow", root / "flow.py")
    assert own_modules(root, [own]) == [own]


def test_the_standard_library_never_travels():
    root = Path(sysconfig.get_path("stdlib")).parent
    assert own_modules(root, [sys.modules["json"]]) == []
