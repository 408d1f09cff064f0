"""`headrace query check`."""

import json

import pytest
from click.testing import CliRunner

from headrace.cli import main

FLOW = """
from headrace import Topic


class Click:
    country: str
    price: float


clicks = Topic("clicks", event=Click)
raw = Topic("raw")
"""


@pytest.fixture
def check(tmp_path, monkeypatch):
    """``check(text, *options, input=...)``: the command in a project of its own."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "query_flow.py").write_text(FLOW)
    settings = '[project]\nname = "queries"\nmodules = ["query_flow"]\n'
    (tmp_path / "headrace.toml").write_text(settings)

    def run(text, *options, **changes):
        arguments = ["query", "check", text, "--project", str(tmp_path), *options]
        return CliRunner().invoke(main, arguments, **changes)

    return run


def test_a_query_is_shown_as_it_is_understood(check):
    done = check("select average(price) from clicks where country='PL' facet country")
    assert done.exit_code == 0, done.output
    assert "SELECT average(price)\nFROM clicks\nWHERE country = 'PL'\n" in done.output
    assert [line.split() for line in done.output.splitlines()[-2:]] == [
        ["country", "text"],
        ["average(price)", "number"],
    ]


def test_a_loss_of_signal_beside_groups_is_noted(check):
    text = "SELECT count(*) FROM clicks LOSS OF SIGNAL AFTER 3 WINDOWS"
    assert "Note: LOSS OF SIGNAL is of the whole query" in check(f"{text} FACET country").output
    assert "Note" not in check(text).output


def test_a_query_from_standard_input_in_json(check):
    done = check("-", "--json", input="SELECT count(*) AS n FROM clicks WINDOW 2 minutes")
    assert json.loads(done.stdout) == {
        "query": "SELECT count(*) AS n\nFROM clicks\nWINDOW 2 minutes",
        "topic": "clicks",
        "window_seconds": 120.0,
        "slide_seconds": 120.0,
        "columns": [{"name": "n", "type": "integer"}],
        "notes": [],
    }


def test_a_text_that_is_not_utf8_is_named(check):
    done = check("-", input=b"SELECT count(*)\nFROM \xff")
    assert done.exit_code == 2
    assert "(line 2, column 1): the text is not UTF-8" in done.output


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "SELECT count(*) FROM click",
            "(line 1, column 17): no topic 'click' is declared; did you",
        ),
        ("SELECT count(*) FROM zzz", "declared are clicks, raw"),
        ("SELECT count(*) FROM raw", "topic 'raw' has no event class"),
        (
            "SELECT sum(prize) FROM clicks",
            "(line 1, column 12): there is no field 'prize' in Click",
        ),
    ],
)
def test_a_query_that_does_not_fit_has_exit_code_2(check, text, message):
    done = check(text, "--json")
    assert done.exit_code == 2
    answer = json.loads(done.stdout)
    assert answer["error"] == "QueryTextError"
    assert message in answer["message"]


def test_a_query_that_is_too_large_with_its_brackets_is_refused(check):
    condition = " OR ".join(["price > 1 AND price + 1 > 2"] * 300)
    done = check(f"SELECT count(*) FROM clicks WHERE {condition}")
    assert done.exit_code == 2
    assert "with all its brackets, as it is stored, the query is too large" in done.output
