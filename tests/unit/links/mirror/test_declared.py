"""What a project's mirrors declare, and every problem with them."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from headrace import Mirror
from headrace.errors import ProjectError
from headrace.project.check import load_project
from headrace.project.loaded import LoadedProject
from headrace.settings import load_settings

TOML = """\
[project]
name = "ads"
modules = ["flow"]
[sites.warsaw.kafka]
bootstrap_servers = "w:1"
"""
HEAD = """\
from datetime import timedelta
from headrace import *

clicks = Topic("warsaw.clicks", partitions=4)
"""


@pytest.fixture
def write(tmp_path: Path):
    """Write a project of one module and load it."""

    def load(body: str) -> LoadedProject:
        (tmp_path / "headrace.toml").write_text(TOML)
        (tmp_path / "flow.py").write_text(HEAD + dedent(body), encoding="utf-8")
        return load_project(load_settings(tmp_path, {}))

    return load


def test_a_mirror_is_found_with_its_group(write):
    project = write("""warsaw = Mirror("warsaw", source="warsaw", topics={"clicks": clicks})""")
    assert project.declared(Mirror)["warsaw"].consumer_group == "headrace.mirror.warsaw"


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("""m = Mirror(1, "warsaw", {"clicks": clicks})""", "mirror 1: name is 1"),
        ("""m = Mirror("a b", "warsaw", {"clicks": clicks})""", "'a b' is not a mirror name"),
        ("""m = Mirror("m", "warsaw", [clicks])""", "mirror 'm': topics is ["),
        ("""m = Mirror("m", "warsaw", {"clicks": "x"})""", "topics has 'clicks': 'x'"),
        ("""m = Mirror("m", "warsaw", {})""", "mirror 'm' has no topics"),
        ("""m = Mirror("m", "warsaw", {"a b": clicks})""", "'a b'"),
        ("""m = Mirror("m", "paris", {"clicks": clicks})""", "no site 'paris'; declared: warsaw"),
        ("""m = Mirror("m", "central", {"clicks": clicks})""", "is the project's own site"),
        ("""m = Mirror("m", "warsaw", {"a": clicks, "b": clicks})""", "copies 2 topics to"),
        (
            """
            late = Topic("late", config={"message.timestamp.type": "LogAppendTime"})
            m = Mirror("m", "warsaw", {"a": late})
            """,
            "copy 'late' has message.timestamp.type LogAppendTime",
        ),
        (
            """m = Mirror("m", "warsaw", {"a": clicks}, commit_every=timedelta(0))""",
            "Mirror.commit_every",
        ),
        (
            """m = Mirror("m", "warsaw", {"a": clicks}, commit_every=timedelta(seconds=6))""",
            "at most 0:00:05",
        ),
        (
            """m = Mirror("m", "warsaw", {"a": Topic("other")})""",
            "mirror 'm' copies to 'other', which no module declares",
        ),
        (
            """
            m = Mirror("m", "warsaw", {"a": clicks})
            n = [Mirror("m", "warsaw", {"b": clicks})]
            """,
            "mirror 'm' is already declared",
        ),
    ],
)
def test_problems_are_named(write, body, problem):
    with pytest.raises(ProjectError) as raised:
        write(body)
    assert problem in str(raised.value)
