"""The public door: a project opened in a program."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import headrace
from headrace.errors import ExtraMissingError
from headrace.operations.new_project import write_project


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A new project."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    write_project(tmp_path / "ads")
    return tmp_path / "ads"


def test_a_project_is_opened_by_its_folder_or_from_within_it(folder, monkeypatch):
    assert list(headrace.Project.open(folder).topics) == ["page-views"]
    monkeypatch.chdir(folder)
    assert list(headrace.Project.open().topics) == ["page-views"]


def test_a_folder_without_a_project_is_an_error(tmp_path):
    with pytest.raises(headrace.HeadraceError, match=r"headrace\.toml"):
        headrace.Project.open(tmp_path)


def test_a_table_is_read_as_it_is_now(folder):
    rows = pa.table({"event_id": ["a", "b"], "page": ["/", "/docs"]})
    write_deltalake(folder / ".headrace" / "lake" / "page_views", rows)
    project = headrace.Project.open(folder)
    assert sorted(project.read("page_views")["event_id"].to_pylist()) == ["a", "b"]
    assert project.read("page_views", ["page"]).column_names == ["page"]


def test_a_table_that_nobody_writes_and_one_that_is_not_there_are_named(folder):
    project = headrace.Project.open(folder)
    with pytest.raises(headrace.HeadraceError, match="declared 'page_views'"):
        project.read("page_view")
    with pytest.raises(headrace.HeadraceError, match="page_views"):
        project.read("page_views")


def test_a_table_is_read_with_the_extra_spark_only(folder, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "pyarrow" else find(name)
    )
    with pytest.raises(ExtraMissingError, match=r"headrace\[spark\]"):
        headrace.Project.open(folder).read("page_views")


def test_a_producer_needs_a_broker(folder):
    with pytest.raises(headrace.HeadraceError, match="headrace up"):
        headrace.Project.open(folder).producer()


def test_the_import_of_headrace_brings_no_kafka_client_and_no_arrow():
    program = (
        "import headrace, sys; "
        "assert not {'confluent_kafka', 'pyarrow', 'pyspark'} & sys.modules.keys(); "
        "headrace.Project, headrace.EventProducer"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_another_name_is_no_attribute():
    with pytest.raises(AttributeError, match="no attribute 'Projekt'"):
        _ = headrace.Projekt


def test_standing_queries_need_their_extra(folder, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "sqlglot" else find(name)
    )
    project = headrace.Project.open(folder)
    asks = (
        project.register_query,
        project.cancel_query,
        project.query_results,
        project.matched_events,
    )
    for ask in asks:
        with pytest.raises(ExtraMissingError, match=r"headrace\[queries\]"):
            ask("clicks-a-minute")
