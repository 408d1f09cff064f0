"""How a project's modules come to the tasks of Spark, without Spark."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.spark.modules import path_of_modules, write_archive

ORDERS = """
from __future__ import annotations
from dataclasses import dataclass
from datetime import datetime

@dataclass
class Order:
    at: datetime
"""
READ = """
import msgspec
from sent_shop.deep.orders import Order
from sent_flow import topic
print(msgspec.json.decode(b'{"at": "2026-01-01T00:00:00Z"}', type=Order).at.year, topic)
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project's folder, whose modules are loaded."""
    folder = tmp_path / "project"
    (folder / "sent_shop" / "deep").mkdir(parents=True)
    (folder / "sent_shop" / "deep" / "orders.py").write_text(ORDERS)
    (folder / "sent_flow.py").write_text(
        "from sent_shop.deep.orders import Order\ntopic = 'orders'\n"
    )
    monkeypatch.syspath_prepend(str(folder))
    names = ("sent_flow", "sent_shop.deep.orders")
    yield {name: importlib.import_module(name) for name in names}
    for name in (*names, "sent_shop", "sent_shop.deep"):
        sys.modules.pop(name, None)


def test_modules_are_imported_from_their_archive_where_their_folder_is_not(project, tmp_path):
    """With the names in postponed annotations, which a class pickled by value does not find."""
    archive = tmp_path / "modules.zip"
    write_archive(archive, project)
    for module in project.values():
        Path(module.__file__).unlink()
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(archive)!r}){READ}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout == "2026 orders\n"


def test_a_package_is_a_package_and_what_has_no_source_is_left_out(tmp_path, monkeypatch):
    folder = tmp_path / "project"
    (folder / "bought").mkdir(parents=True)
    (folder / "bought" / "__init__.py").write_text("from bought.kind import kind")
    (folder / "bought" / "kind.py").write_text("kind = 'bought'")
    monkeypatch.syspath_prepend(str(folder))
    bought = importlib.import_module("bought")
    archive = tmp_path / "modules.zip"
    native = type(sys)("native")
    native.__file__ = str(folder / "native.so")
    modules = {"bought": bought, "bought.kind": sys.modules["bought.kind"], "native": native}
    write_archive(archive, modules)
    for name in ("bought", "bought.kind"):
        sys.modules.pop(name)
    code = f"import sys; sys.path.insert(0, {str(archive)!r}); import bought; print(bought.kind)"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout == "bought\n"


@pytest.mark.parametrize(
    ("master", "is_here"),
    [
        ("local[2]", True),
        ("local-cluster[1,1,512]", True),
        ("spark://127.0.0.1:7077", True),
        ("spark://localhost:7077", True),
        ("spark://spark1:7077", False),
        ("yarn", False),
    ],
)
def test_only_tasks_on_this_machine_get_the_folder_of_the_project(master, is_here):
    path = path_of_modules(master, Path("/srv/shop"))
    assert path == ({"spark.executorEnv.PYTHONPATH": "/srv/shop"} if is_here else {})
