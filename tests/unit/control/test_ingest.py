"""What the HTTP service is told, and what it can't be told."""

import sys

import pytest

from headrace.control.ingest import ingest_config
from headrace.control.project import Project
from headrace.errors import ProjectError
from headrace.settings import load_settings

FILE = """
[project]
name = "ads"
modules = ["flow"]

[ingest]
redis = "redis://u:${PASSWORD}@cache:6379/0"
"""


def test_without_the_client_of_redis_the_service_says_how_to_install_it(tmp_path, monkeypatch):
    (tmp_path / "headrace.toml").write_text(FILE)
    project = Project(load_settings(tmp_path, {"PASSWORD": "hunter2"}), {}, {})
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(ProjectError) as raised:
        ingest_config(project)
    said = str(raised.value)
    assert "ingest.redis is 'redis://***@cache:6379/0'" in said
    assert "pip install 'headrace[redis]'" in said
    assert "hunter2" not in said
