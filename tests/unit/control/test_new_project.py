from __future__ import annotations

import compileall

import pytest

from headrace.control import load_project
from headrace.control.new_project import write_project
from headrace.errors import ProjectError
from headrace.settings import load_settings


def test_a_new_project_is_valid(tmp_path):
    folder = tmp_path / "my ads!"
    files = write_project(folder)
    project = load_project(load_settings(folder, {}))
    assert project.settings.name == "my-ads"
    assert list(project.pipelines) == ["page-views-to-lake"]
    assert set(files) == {".gitignore", "README.md", "flow.py", "headrace.toml", "produce.py"}
    assert compileall.compile_dir(folder, quiet=1)


def test_a_new_project_overwrites_nothing(tmp_path):
    (tmp_path / "flow.py").write_text("mine")
    with pytest.raises(ProjectError, match="exists already"):
        write_project(tmp_path)
    assert [one.name for one in tmp_path.iterdir()] == ["flow.py"]
    assert (tmp_path / "flow.py").read_text() == "mine"
