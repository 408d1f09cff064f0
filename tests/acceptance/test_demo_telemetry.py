"""`make demo-telemetry`: each result is DuckDB's, and nothing stays behind, interrupted or not."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.acceptance.examples import Import, left_running

from headrace import QueryResult, ResultKind
from headrace.project.check import load_project
from headrace.queries.registry.statements import checked_query
from headrace.settings import load_settings

EXAMPLE = "telemetry"
BEGIN = datetime(2026, 5, 1, tzinfo=UTC)
GROUPS = "4,208 groups of 546 windows"


@pytest.mark.drill
def test_it_ends_with_0_when_each_result_is_that_of_duckdb(
    demo: subprocess.Popen[str], project: Path
) -> None:
    output, _ = demo.communicate()
    assert demo.returncode == 0, output
    assert f"They agree: {GROUPS} of 200 queries." in output
    assert GROUPS in (project / "README.md").read_text(encoding="utf-8")
    assert "200 queries of 14 shapes" in output
    assert re.search(r"final, app=shop, events \d+, accounts \d+, p95_ms", output)
    assert "Looked up by account.id = 'a000'" in output
    assert left_running(project) == []


@pytest.mark.drill
@pytest.mark.parametrize(
    ("signal_", "moment"),
    [(signal.SIGINT, "Send "), (signal.SIGTERM, "Register ")],
    ids=["Ctrl-C, events are sent", "SIGTERM, Spark starts"],
)
def test_interrupted_it_stops_what_it_started(
    demo: subprocess.Popen[str], project: Path, signal_: signal.Signals, moment: str
) -> None:
    assert demo.stdout is not None
    output = next(line for line in demo.stdout if moment in line)
    demo.send_signal(signal_)
    rest, _ = demo.communicate()
    assert demo.returncode == 130, output + rest
    assert left_running(project) == []


def test_every_query_is_valid_and_has_an_id_of_its_own(module: Import, example: Path) -> None:
    queries = module("dashboards").dashboards()
    project = load_project(load_settings(example, {}))
    for query in queries:
        checked = checked_query(project, query.text)
        assert checked.query.topic == query.topic
    assert len({query.id for query in queries}) == 200


def test_six_accounts_have_nine_tenths_of_the_events(module: Import) -> None:
    traffic = module("traffic")
    events = [json.loads(event.text) for event in traffic.sendings(BEGIN, seconds=10)]
    accounts = Counter(event["account"]["id"] for event in events)
    large = sum(count for _, count in accounts.most_common(6))
    assert len(accounts) > 300
    assert 0.88 < large / len(events) < 0.92


def test_the_same_seed_makes_the_same_events(module: Import) -> None:
    traffic = module("traffic")
    assert traffic.sendings(BEGIN, seconds=1) == traffic.sendings(BEGIN, seconds=1)


class Answered:
    """Three seconds of events in files, and the right results of one query of them."""

    def __init__(self, module: Import, folder: Path, query_id: str) -> None:
        self.proof = module("proof")
        traffic = module("traffic")
        traffic.write(traffic.sendings(BEGIN, seconds=3), folder)
        queries = module("dashboards").dashboards()
        (self.query,) = (query for query in queries if query.id == query_id)
        database = self.proof.Database(folder)
        self.expected = database.groups(self.query, BEGIN + timedelta(minutes=1))
        self.actual = {key: [self._result(key)] for key in self.expected}

    def _result(self, key: Any) -> QueryResult:
        values = {
            column.name: value[0] if column.function == "percentile" else value
            for column, value in zip(self.query.columns, self.expected[key], strict=True)
        }
        text = key[1].isoformat()
        return QueryResult(
            key[0],
            text,
            1,
            text,
            text,
            1,
            ResultKind.FINAL,
            {},
            is_other=False,
            values=values,
            events=1,
        )

    def compared(self) -> Any:
        """Returns the only comparison."""
        (comparison,) = self.proof.compared([self.query], self.expected, self.actual)
        return comparison


@pytest.fixture
def answered(module: Import, tmp_path: Path) -> Answered:
    """Results of how long the pages of an account take."""
    return Answered(module, tmp_path, "page-load-a000")


def test_right_results_agree(answered: Answered) -> None:
    comparison = answered.compared()
    assert comparison.agrees
    assert (comparison.windows, comparison.groups) == (1, 5)


def test_a_result_that_is_missing_is_noticed(answered: Answered) -> None:
    answered.actual.popitem()
    assert answered.compared().missing == 1
    assert not answered.compared().agrees


def test_a_result_that_is_there_twice_is_noticed(answered: Answered) -> None:
    results = next(iter(answered.actual.values()))
    results.append(results[0])
    assert answered.compared().extra == 1
    assert not answered.compared().agrees


@pytest.mark.parametrize("column", ["events", "mean_ms", "p95_ms"])
def test_a_value_that_is_another_is_noticed(answered: Answered, column: str) -> None:
    key, (result,) = next(iter(answered.actual.items()))
    values = dict(result.values)
    values[column] *= 1.5
    answered.actual[key] = [msgspec.structs.replace(result, values=values)]
    assert answered.compared().wrong == 1
    assert answered.proof.sentence([answered.compared()]).startswith("They do not agree: 1 ")


def test_of_few_values_a_percentile_is_exact_and_of_many_it_has_a_bound(
    module: Import, tmp_path: Path
) -> None:
    few = Answered(module, tmp_path, "page-load-a000").expected.values()
    assert all(count < 200 and least == greatest for count, _, (least, greatest) in few)
    many = Answered(module, tmp_path, "pages-by-app").expected.values()
    assert all(count > 200 and least < greatest for count, _, (least, greatest) in many)
