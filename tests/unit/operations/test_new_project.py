from __future__ import annotations

import compileall
import json

import pytest

from headrace import Pipeline
from headrace.errors import ProjectError
from headrace.ingest.producing.event_producer import TopicCheck
from headrace.operations.new_project import write_project
from headrace.project.check import load_project
from headrace.settings import load_settings


def test_a_new_project_is_valid(tmp_path):
    folder = tmp_path / "my ads!"
    files = write_project(folder).files
    project = load_project(load_settings(folder, {}))
    assert project.settings.name == "my-ads"
    assert list(project.declared(Pipeline)) == ["page-views-to-lake"]
    events = "page-views.ndjson"
    assert set(files) == {".gitignore", "README.md", "flow.py", "headrace.toml", events}
    assert compileall.compile_dir(folder, quiet=1)


def test_the_events_of_a_new_project_are_valid(tmp_path):
    write_project(tmp_path)
    project = load_project(load_settings(tmp_path, {}))
    check = TopicCheck(project.topics["page-views"], project.settings)
    lines = (tmp_path / "page-views.ndjson").read_bytes().splitlines()
    ids = {json.loads(check(line).value)["event_id"] for line in lines}
    assert len(lines) == len(ids) == 100


def test_a_new_project_overwrites_nothing(tmp_path):
    (tmp_path / "flow.py").write_text("mine")
    with pytest.raises(ProjectError, match="exists already"):
        write_project(tmp_path)
    assert [one.name for one in tmp_path.iterdir()] == ["flow.py"]
    assert (tmp_path / "flow.py").read_text() == "mine"
