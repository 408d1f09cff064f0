"""Texts of standing queries that do not fit, and what is said of a text that looks like a name."""

from __future__ import annotations

import sys

import pytest
from tests.unit.queries.registry.flow import FLOW, write_project

from headrace.errors import QueryTextError
from headrace.project.check import load_project
from headrace.queries.registry.statements import checked_query
from headrace.settings import load_settings


@pytest.fixture
def refusal(tmp_path, monkeypatch):
    """``refusal(condition)``: line, column and reason of the error."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    project = load_project(load_settings(write_project(tmp_path), {}))

    def of(condition):
        with pytest.raises(QueryTextError) as raised:
            checked_query(project, f"SELECT count(*) FROM clicks\nWHERE {condition}")
        return raised.value.line, raised.value.column, raised.value.reason

    return of


def test_a_topic_of_envelopes_has_no_single_events(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    flow = FLOW.replace('Topic("views", ', 'Topic("views", envelope=ArrayEnvelope(), ')
    flow = flow.replace("import Guarantee", "import ArrayEnvelope, Guarantee")
    project = load_project(load_settings(write_project(tmp_path, flow), {}))
    with pytest.raises(QueryTextError, match="envelopes of events; ask the topic of single events"):
        checked_query(project, "SELECT count(*) FROM views")


@pytest.mark.parametrize(
    ("condition", "column", "text"),
    [
        ('country = "PL"', 17, "'PL'"),
        ('startsWith(country, "it\'s")', 27, "'it''s'"),
        ('country = "price"', 17, "'price'"),
        ('"say ""PL""" = country', 7, "'say \"PL\"'"),
    ],
)
def test_a_text_in_the_quotation_marks_of_names_is_named(refusal, condition, column, text):
    line, actual, reason = refusal(condition)
    assert (line, actual) == (2, column)
    assert reason.endswith(f"; if a text is meant, write {text}")


@pytest.mark.parametrize("condition", ["country = PL", "country = 3", "prize > 1"])
def test_other_errors_say_nothing_of_texts(refusal, condition):
    assert "if a text is meant" not in refusal(condition)[2]
