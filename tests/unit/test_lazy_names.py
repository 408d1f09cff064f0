"""Names of a package that are imported when they are used."""

from __future__ import annotations

import importlib
import sys

import pytest

STUB = """
from json import JSONDecodeError

from .inner.place import Place

__all__ = ["JSONDecodeError", "Place"]
"""
INIT = """
from headrace.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    (tmp_path / "lazy_package" / "inner").mkdir(parents=True)
    (tmp_path / "lazy_package" / "__init__.py").write_text(INIT)
    (tmp_path / "lazy_package" / "__init__.pyi").write_text(STUB)
    (tmp_path / "lazy_package" / "inner" / "__init__.py").touch()
    (tmp_path / "lazy_package" / "inner" / "place.py").write_text("class Place: ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("lazy_package")
    for name in [name for name in sys.modules if name.startswith("lazy_package")]:
        del sys.modules[name]


def test_a_name_imports_its_module_at_its_first_use_only(package):
    assert "lazy_package.inner.place" not in sys.modules
    place = package.Place
    assert place.__module__ == "lazy_package.inner.place"
    del sys.modules["lazy_package.inner.place"]
    assert package.Place is place


def test_names_may_be_those_of_other_packages(package):
    assert package.JSONDecodeError is importlib.import_module("json").JSONDecodeError


def test_the_stub_says_which_names_there_are(package):
    assert package.__all__ == dir(package) == ["JSONDecodeError", "Place"]
    with pytest.raises(AttributeError, match="module 'lazy_package' has no attribute 'inner_name'"):
        _ = package.inner_name
