"""Which modules are the project's own: they are read for declarations, and travel with a job."""

import sys
import sysconfig
from pathlib import Path
from types import ModuleType

import pytest

from headrace.project.modules import own_modules


def is_own(root: Path, name: str, file: str | Path | None) -> bool:
    module = ModuleType(name)
    module.__file__ = None if file is None else str(file)
    return own_modules(root, {name: module}) == {name: module}


@pytest.mark.parametrize("file", ["flow.py", "tasks/enrich.py", "src/shop/__init__.py"])
def test_modules_below_the_projects_folder_are_its_own(tmp_path, file):
    assert is_own(tmp_path, "flow", tmp_path / file)


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
def test_what_is_installed_is_not_although_it_is_in_the_folder(tmp_path, monkeypatch, name, file):
    monkeypatch.setattr(sys, "prefix", str(tmp_path / ".venv"))
    assert not is_own(tmp_path, name, None if file is None else tmp_path / file)


def test_an_environment_around_the_project_hides_nothing_of_it(tmp_path, monkeypatch):
    """Images have projects in /usr/src/app, and their Python in /usr."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    root = tmp_path / "src" / "app"
    assert is_own(root, "flow", root / "flow.py")


def test_the_standard_library_never_is():
    root = Path(sysconfig.get_path("stdlib")).parent
    assert own_modules(root, {"json": sys.modules["json"]}) == {}


def test_links_to_the_folder_and_in_it_lead_to_its_modules(tmp_path):
    root, shared = tmp_path / "project", tmp_path / "shared"
    root.mkdir()
    shared.mkdir()
    (root / "tasks").symlink_to(shared)
    (tmp_path / "link").symlink_to(root)
    assert is_own(root, "tasks.enrich", root / "tasks" / "enrich.py")
    assert is_own(root, "flow", tmp_path / "link" / "flow.py")
    assert not is_own(root, "enrich", shared / "enrich.py")


def test_an_environment_that_is_a_link_in_the_folder_is_none_of_it(tmp_path, monkeypatch):
    root = tmp_path / "project"
    root.mkdir()
    (tmp_path / "environment").mkdir()
    (root / ".venv").symlink_to(tmp_path / "environment")
    monkeypatch.setattr(sys, "prefix", str(root / ".venv"))
    assert not is_own(root, "sitecustomize", root / ".venv" / "sitecustomize.py")


def test_a_file_without_a_folder_is_none_of_the_working_folder(tmp_path, monkeypatch):
    """As that of ``torch.classes``."""
    monkeypatch.chdir(tmp_path)
    assert not is_own(tmp_path, "torch.classes", "_classes.py")
