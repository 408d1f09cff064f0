"""What a project's standing queries declare, and every problem with them."""

from __future__ import annotations

import sys
from textwrap import dedent

import pytest
from tests.unit.queries.registry.flow import FLOW, write_project

from headrace import Pipeline, StandingQueries
from headrace.errors import ProjectError
from headrace.project.check import load_project
from headrace.settings import load_settings

HEAD = """\
from datetime import timedelta
from headrace import StandingQueries, Topic
"""


@pytest.fixture
def load(tmp_path, monkeypatch):
    """``load(body)``: a project of a module."""
    monkeypatch.setattr(sys, "path", list(sys.path))

    def project(body, head=HEAD):
        return load_project(load_settings(write_project(tmp_path, head + dedent(body)), {}))

    return project


def test_standing_queries_are_declared_with_their_topics(load):
    project = load("""ads = StandingQueries("ads", max_ttl=timedelta(days=30))""")
    assert project.declared(StandingQueries)["ads"].topics == (
        "ads.queries",
        "ads.matched",
        "ads.positions",
        "ads.snapshots",
        "ads.ended",
        "ads.results",
        "ads.matched-events",
        "ads.leases",
    )


def test_those_of_two_names_are_two_registries(load):
    project = load("""both = [StandingQueries("a"), StandingQueries("b", max_ttl=None)]""")
    assert list(project.declared(StandingQueries)) == ["a", "b"]


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("""q = StandingQueries(1)""", "1 is not a name of standing queries"),
        ("""q = StandingQueries("a b")""", "'a b' is not a name of standing queries"),
        ("""q = StandingQueries("_a")""", "'_a' is not a name"),
        ("""q = StandingQueries([])""", "[] is not a name"),
        ("""q = StandingQueries("q", partitions=0)""", "StandingQueries.partitions is 0"),
        ("""q = StandingQueries("q", partitions=True)""", "StandingQueries.partitions is True"),
        ("""q = StandingQueries("q", partitions=65)""", "standing queries 'q': partitions is 65"),
        (
            """q = StandingQueries("q", partitions_per_instance=0)""",
            "StandingQueries.partitions_per_instance is 0",
        ),
        ("""q = StandingQueries("q", max_ttl=60)""", "standing queries 'q': max_ttl is 60"),
        ("""q = StandingQueries("q", max_ttl=timedelta(0))""", "max_ttl is datetime.timedelta(0)"),
        (
            """q = StandingQueries("q", max_ttl=timedelta(days=30, seconds=1))""",
            "a timedelta from 1 second to 30 days; or None",
        ),
        (
            """
            q = StandingQueries("q")
            r = [StandingQueries("q")]
            """,
            "standing queries 'q' is already declared",
        ),
        (
            """
            t = Topic("ads.results")
            q = StandingQueries("ads")
            """,
            ":5: topic 'ads.results' of standing queries 'ads' collides with topic 'ads.res",
        ),
        (
            """
            q = StandingQueries("ads_1")
            t = Topic("ads_1_queries")
            """,
            "topic 'ads_1.queries' of standing queries 'ads_1' collides with topic 'ads_1_queries'",
        ),
        (
            """
            q = StandingQueries("a.b")
            r = StandingQueries("a_b")
            """,
            "topic 'a_b.matched' of standing queries 'a_b' collides with standing queries 'a.b'",
        ),
    ],
)
def test_problems_are_named(load, body, problem):
    with pytest.raises(ProjectError) as raised:
        load(body)
    assert problem in str(raised.value)


def test_queries_that_a_pipeline_matches_are_to_be_declared(load):
    flow = FLOW.replace("StandIn(ads)", 'StandIn(StandingQueries("other"))')
    with pytest.raises(ProjectError, match="'match-clicks' matches 'other', which is not declared"):
        load(flow, head="")


def test_a_project_with_a_match_stage_is_valid(load):
    assert list(load(FLOW, head="").declared(Pipeline)) == ["match-clicks"]
