"""What the code accepts, refuses and measures is what the reference says."""

from __future__ import annotations

import itertools
import re
import tomllib
from dataclasses import asdict
from pathlib import Path

import pytest

from headrace import BigQuery, Postgres, Profiles, errors
from headrace.ingest.figures.service_metrics import (
    ACCOUNT_METRICS,
    EVENT_CODES,
    OTHER,
    SERVICE_METRICS,
    SPOOL_METRICS,
)
from headrace.kafka.client.broker_errors import Meaning, names
from headrace.model import CONFLICTING_KEY, DeadLetterLimit, envelope
from headrace.pipelines.source.decode.avro import AvroDecoder
from headrace.pipelines.source.decode.checks import RowChecks
from headrace.pipelines.source.decode.json_events import JsonDecoder
from headrace.pipelines.source.decode.protobuf import ProtobufDecoder
from headrace.settings import load_settings
from headrace.settings.document import Document
from headrace.settings.kafka_clients import CLUSTER, DECLARED, KINDS_WITH_CLIENTS
from headrace.sinks.opensearch.client import KNOWN_SETTINGS

_REASON = re.compile(r"^ +([a-z0-9]+(?:-[a-z0-9]+)*)  +\S", re.MULTILINE)
_REASON_OF_ROW = re.compile(
    r'(?:RejectedRow|RejectedValues|_RejectedError|_rejected)\((?:[^"\n]+, )?"([a-z-]+)"'
)
_ROW = re.compile(r"^\| `(?P<name>[^`]+)`", re.MULTILINE)


@pytest.fixture
def accepted_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Dotted path of every key that headrace.toml may hold."""
    read: list[Document] = []
    finish = Document.finish

    def finish_read(document: Document) -> list[errors.Problem]:
        read.append(document)
        return finish(document)

    monkeypatch.setattr(Document, "finish", finish_read)
    (tmp_path / "headrace.toml").write_text('[project]\nname = "any"\nmodules = ["any"]\n')
    load_settings(tmp_path, {})
    (document,) = read
    return {".".join((*table.path, name)) for table in document.tables for name in table.known}


def test_every_setting_is_documented_and_no_other(
    accepted_keys: set[str], pages: dict[str, str]
) -> None:
    page = pages["docs/reference/settings.md"]
    tables = {
        key for key in accepted_keys if f"\n## `[{key}]`" in page or f"\n### `[{key}]`" in page
    }
    documented = {name for name in _rows(page) if "." in name}
    of_sinks = {
        f"sinks.{sink.kind}.{key}"
        for sink in (BigQuery, Postgres, Profiles)
        for key in sink.required_settings
    }
    of_sinks |= {f"sinks.lake.{key}" for key in ("catalog", "name", "uri")}
    of_sinks |= {f"sinks.opensearch.{key}" for key in KNOWN_SETTINGS}
    of_sinks |= {f"sinks.bigquery.{key}" for key in BigQuery.optional_settings}
    of_names = {"sites.NAME.longest_cut_hours", "sinks.postgres.NAME.url"}
    of_names |= {f"KIND.NAME.kafka.{table}" for table in DECLARED.tables}
    named = {"sinks", *KINDS_WITH_CLIENTS}
    assert documented == accepted_keys - tables - named | of_sinks | of_names


@pytest.mark.parametrize("table", CLUSTER.tables)
def test_every_setting_of_kafka_clients_is_documented(table: str, pages: dict[str, str]) -> None:
    page = pages["docs/reference/settings.md"]
    [row] = [line for line in page.splitlines() if line.startswith(f"| `kafka.{table}` |")]
    assert set(re.findall(r"`([a-z.]+)`", row.split("|")[3])) == set(CLUSTER.tables[table])


def test_each_kind_with_kafka_clients_is_documented(pages: dict[str, str]) -> None:
    page = pages["docs/reference/settings.md"].partition("## `[KIND.NAME.kafka]`")[2]
    assert set(re.findall(r"`(\w+)`", page.partition("`NAME`")[0])) >= set(KINDS_WITH_CLIENTS)


def test_the_example_of_the_settings_page_is_accepted(
    pages: dict[str, str], tmp_path: Path
) -> None:
    text = pages["docs/reference/settings.md"].partition("```toml\n")[2].partition("```")[0]
    (tmp_path / "headrace.toml").write_text(text)
    settings = load_settings(tmp_path, {})
    assert settings.kafka.embedded.heap_mb == 512


def test_every_environment_variable_is_documented(pages: dict[str, str], root: Path) -> None:
    source = "".join(file.read_text() for file in (root / "src").rglob("*.py"))
    read = set(re.findall(r'"(HEADRACE_[A-Z_]+)"', source))
    read |= set(re.findall(r'environ(?:\.get\(|\[)"([A-Z_]+)"\)', source))
    missing = {name for name in read if f"`{name}`" not in pages["docs/reference/settings.md"]}
    assert not missing - {"HOME"}


def test_every_reason_of_a_dead_letter_is_documented(pages: dict[str, str]) -> None:
    reasons = set(
        _REASON.findall(
            f"{JsonDecoder.__doc__}{AvroDecoder.__doc__}{ProtobufDecoder.__doc__}{RowChecks.__doc__}"
        )
    )
    documented = set(_rows(_section(pages["docs/guarantees.md"], "What a record is rejected for")))
    assert documented == reasons


def test_every_reason_of_a_rejected_row_is_documented(pages: dict[str, str], root: Path) -> None:
    sinks = root / "src" / "headrace" / "sinks"
    source = "".join(file.read_text() for file in sinks.rglob("*.py"))
    states = (sinks / "postgres" / "sqlstates.py").read_text()
    reasons = {CONFLICTING_KEY, *_REASON_OF_ROW.findall(source)}
    reasons |= set(re.findall(r'"([a-z]+(?:-[a-z]+)+)"', states))
    assert {"too-old-to-compare", "bad-key", "rejected-by-kafka", "foreign-key"} <= reasons
    documented = _section(pages["docs/sinks.md"], "Rejected rows")
    assert {reason for reason in reasons if f"`{reason}`" not in documented} == set()


def test_every_reason_of_a_bad_envelope_is_documented(pages: dict[str, str]) -> None:
    table = (envelope.__doc__ or "").split("=====\n")[1]
    reasons = {line.split()[0] for line in table.splitlines() if re.match(r"[a-z]", line)}
    page = _section(pages["docs/envelopes.md"], "What is promised")
    assert set(_rows(page)) == reasons


def test_the_default_limit_of_dead_letters_is_documented(pages: dict[str, str]) -> None:
    limit = DeadLetterLimit()
    arguments = ", ".join(f"{name}={value:_}" for name, value in asdict(limit).items())
    assert f"`DeadLetterLimit({arguments})`" in _in_one_line(pages["docs/concepts.md"])
    share = f"{limit.max_ratio:.0%} of {limit.min_records:,} records"
    phrase = f"`DeadLetterLimit({share}, {limit.max_consecutive:,} in a row)`"
    assert phrase in _in_one_line(pages["docs/workers.md"])


def test_every_refusal_is_documented(pages: dict[str, str]) -> None:
    kinds = [getattr(errors, name) for name in errors.__all__]
    refusals = [kind for kind in kinds if issubclass(kind, errors.RefusedError)]
    codes = {code for kind in refusals for code in kind.codes()} - set(errors.RefusedError.codes())
    codes.add(errors.DeadLetterLimitError.code)
    documented = set(_rows(_section(pages["docs/guarantees.md"], "What is refused")))
    assert documented == codes


def test_every_problem_of_an_event_is_counted_and_documented(pages: dict[str, str]) -> None:
    section = pages["docs/reference/ingest.md"].partition("\n### Of an event\n")[2]
    documented = set(_rows(section.partition("\n### ")[0]))
    assert documented == set(EVENT_CODES) - {OTHER}


def test_every_problem_of_a_request_is_documented(pages: dict[str, str], root: Path) -> None:
    page = pages["docs/reference/ingest.md"]
    source = "".join(one.read_text() for one in (root / "src/headrace/ingest").rglob("*.py"))
    used = set(re.findall(r'HTTPStatus\.[A-Z_]+,\s+"([a-z-]+)"', source))
    assert len(used) > 10
    assert {code for code in used if f"`{code}`" not in page} == set()


def test_every_metric_of_the_service_is_documented(pages: dict[str, str]) -> None:
    rows = _rows(pages["docs/reference/ingest.md"])
    assert not {one.name for one in (*SERVICE_METRICS, *ACCOUNT_METRICS, *SPOOL_METRICS)} - set(
        rows
    )


def test_every_final_answer_of_kafka_is_documented(pages: dict[str, str]) -> None:
    page = pages["docs/reference/ingest.md"]
    final = (*names(Meaning.INVALID_RECORD), *names(Meaning.INVALID_TOPIC))
    assert not {name for name in (*final, "TOPIC_AUTHORIZATION_FAILED") if f"`{name}`" not in page}


def test_every_dependency_has_its_reason(pages: dict[str, str], root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    extras = itertools.chain(*project["optional-dependencies"].values())
    declared = {re.split(r"[<>=[]", line)[0] for line in (*project["dependencies"], *extras)}
    assert set(_rows(pages["docs/decisions/0006-dependencies.md"])) == declared - {"headrace"}


def _rows(text: str) -> list[str]:
    """First cell of each table row that begins with code."""
    return [found["name"] for found in _ROW.finditer(text)]


def _in_one_line(text: str) -> str:
    return " ".join(text.split())


def _section(page: str, title: str) -> str:
    return page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
