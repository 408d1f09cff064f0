"""What `reconcile` shows of the windows of a pipeline."""

from datetime import UTC, datetime

import pytest

from headrace.cli.console import ConsoleOutput
from headrace.ledger.sums import Fate
from headrace.ledger.windows import WindowBalance, WindowState
from headrace.operations.reconciling.reconciliation import Reconciliation
from headrace.operations.reconciling.views import MAX_BALANCED
from headrace.pipelines.ledger.book import PipelineBook

START = datetime(2026, 1, 1, tzinfo=UTC)


def shown(capsys, *windows):
    """Returns the lines below the name of the pipeline."""
    balance = PipelineBook("clicks", 60, (), windows)
    ConsoleOutput().show(Reconciliation((balance,)))
    [_, *lines] = capsys.readouterr().out.splitlines()
    return [" ".join(line.split()) for line in lines]


def window(**rows):
    return WindowBalance(START, WindowState.BALANCED, 9, {Fate.OUT: 9}, **rows)


@pytest.mark.parametrize(
    ("rows", "titles"),
    [
        ({}, ""),
        ({"rows": 9}, " in table"),
        ({"rows": 9, "side_rows": 0}, " in table in side table"),
        ({"side_rows": 0}, " in side table"),
    ],
)
def test_tables_whose_rows_were_not_counted_have_no_column(capsys, rows, titles):
    assert shown(capsys, window(), window(**rows))[0] == "window state read out" + titles


def test_of_balanced_windows_the_newest_are_shown(capsys):
    [_, *windows, _, last] = shown(capsys, *(window() for _ in range(MAX_BALANCED + 3)))
    assert len(windows) == MAX_BALANCED
    assert last == "3 earlier windows are balanced."


def test_the_last_row_has_the_totals_of_all_windows(capsys):
    windows = [window(rows=8) for _ in range(MAX_BALANCED + 3)]
    assert shown(capsys, *windows)[-2] == "total, 27 windows 243 243 216"
    assert "total" not in "".join(shown(capsys, windows[0]))


def test_a_figure_that_is_unknown_of_a_window_has_no_total(capsys):
    assert shown(capsys, window(rows=8), window())[-1] == "total, 2 windows 18 18"


def test_json_has_the_totals_of_each_book():
    books = (
        PipelineBook("clicks", 60, (), (window(rows=9), window(rows=8))),
        PipelineBook("views", 0, (), (), "it has no entries in the ledger"),
        PipelineBook("likes", 60, (), (window(), window(rows=9))),
    )
    clicks, likes = Reconciliation(books).to_json()["totals"]
    assert (clicks.section, clicks.title, clicks.lines) == ("pipelines", "clicks", 2)
    assert clicks.figures == {"read": 18, "out": 18, "in table": 17}
    assert likes.figures == {"read": 18, "out": 18, "in table": None}
