"""The chart of the README, made of results.json."""

from bench.chart import CHART, PANELS, svg
from bench.results import read


def test_the_chart_is_the_one_that_the_command_makes():
    assert CHART.read_text() == svg(read()), "run `make chart`"


def test_every_system_of_its_benchmarks_has_a_bar():
    document = read()
    rows = [row for row in document["rows"] for panel in PANELS if _is_of(row, panel)]
    assert len(rows) == svg(document).count('<path class="range"')
    assert {row["benchmark"] for row in rows} == {panel.benchmark for panel in PANELS}


def _is_of(row, panel):
    size = row.get("threads") or row.get("lanes")
    return (row["benchmark"], row["metric"], size) == (panel.benchmark, panel.metric, panel.size)
