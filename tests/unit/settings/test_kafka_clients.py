"""Settings of Kafka clients: what may be set and where, and what is refused with its way out."""

from __future__ import annotations

import itertools
from pathlib import Path

import confluent_kafka
import pytest
from hypothesis import given, strategies

from headrace.errors import ProjectError
from headrace.project.kinds import kinds
from headrace.settings import ClientSettings, load_settings
from headrace.settings.kafka_clients import (
    BY_JAVA,
    BY_SPARK,
    CLUSTER,
    DECLARED,
    KINDS_WITH_CLIENTS,
    OWNED,
    READING,
    WRITING,
    setting_problem,
)
from headrace.settings.kinds import FOLDERS

HEAD = '[project]\nname = "ads"\nmodules = ["flow"]\n[sites.waw]\n'
SCOPES = (CLUSTER, DECLARED, BY_SPARK)
TABLES = ("client", "consumer", "producer")
UNKNOWN = "No such configuration property"


@pytest.fixture
def load(tmp_path: Path):
    def settings(text: str):
        (tmp_path / "headrace.toml").write_text(HEAD + text, encoding="utf-8")
        return load_settings(tmp_path, {})

    return settings


@strategies.composite
def spellings(draw, names):
    """A name in any casing, with any whitespace around it."""
    letters = [draw(strategies.sampled_from((c.lower(), c.upper()))) for c in draw(names)]
    before, after = (draw(strategies.text(" \t\n\r\u00a0", max_size=3)) for _ in range(2))
    return before + "".join(letters) + after


@given(
    spellings(strategies.sampled_from(sorted(OWNED))),
    strategies.sampled_from(SCOPES),
    strategies.sampled_from(TABLES),
    strategies.text(max_size=5),
)
def test_what_headrace_sets_is_refused_however_it_is_written(name, scope, table, value):
    reason, way_out = OWNED[name.strip().lower()]
    assert setting_problem(scope, table, name, value) == (f"can't be set: {reason}", way_out)
    assert reason
    assert way_out


@given(
    spellings(
        strategies.sampled_from(
            ("sasl.password", "ssl.key.pem", "https.ca.pem", "enable.ssl.certificate.verification")
        )
    ),
    strategies.sampled_from(TABLES),
)
def test_the_login_is_set_elsewhere(name, table):
    problem, way_out = setting_problem(DECLARED, table, name, "x")
    assert problem == "can't be set: it is part of how the project logs in"
    assert "[kafka.oauth]" in way_out


@given(spellings(strategies.sampled_from(sorted({**READING, **WRITING}))))
def test_a_name_in_other_letters_is_refused_with_the_one_that_clients_know(name):
    meant = name.strip().lower()
    table = "consumer" if meant in READING else "producer"
    problem, remedy = setting_problem(DECLARED, table, name, "1")
    if name != meant:
        assert (problem, remedy) == ("can't be set", f"did you mean {meant!r}?")


@pytest.mark.parametrize("scope", SCOPES)
def test_nothing_that_headrace_sets_can_be_set(scope):
    allowed = set().union(*scope.tables.values())
    assert not allowed & set(OWNED)


@pytest.mark.parametrize("name", sorted(OWNED))
def test_what_is_refused_by_name_is_a_setting_of_librdkafka_or_of_java(name):
    problem = ""
    try:
        confluent_kafka.Consumer({"group.id": "g", name: "x"})
    except confluent_kafka.KafkaException as error:
        problem = str(error)
    assert UNKNOWN not in problem


def edges():
    """Each setting that may be set, at both ends of its values."""
    for table, name, values in (
        *(("consumer", *setting) for setting in READING.items()),
        *(("producer", *setting) for setting in WRITING.items()),
    ):
        texts = values.split("|") if isinstance(values, str) else map(str, (values[0], values[-1]))
        for text in texts:
            yield table, name, text


@pytest.mark.parametrize(("table", "name", "value"), [*edges()])
def test_librdkafka_takes_what_check_takes(table, name, value):
    assert setting_problem(DECLARED, table, name, value) == ("", "")
    if table == "consumer":
        confluent_kafka.Consumer({"group.id": "g", name: value}).close()
    else:
        limits = {"message.max.bytes": str(64 * 1024 * 1024), "message.timeout.ms": "60000"}
        confluent_kafka.Producer({"enable.idempotence": "true", name: value} | limits)


@pytest.mark.parametrize(
    ("scope", "table", "name", "value", "problem", "remedy"),
    [
        (DECLARED, "consumer", "fetch.min.byte", "1", "can't be set", "mean 'fetch.min.bytes'?"),
        (DECLARED, "consumer", "fetch.max.wait.ms", "1", "set", "mean 'fetch.wait.max.ms'?"),
        (DECLARED, "producer", "queue.buffering.max.ms", "1", "set", "did you mean 'linger.ms'?"),
        (DECLARED, "consumer", "linger.ms", "1", "can't be set", "in the table 'producer' beside"),
        (DECLARED, "client", "linger.ms", "1", "can't be set", "in the table 'producer' beside"),
        (DECLARED, "producer", "client.rack", "a", "can't be set", "in the table 'client' beside"),
        (DECLARED, "producer", "zzz", "a", "can't be set", "known here: batch.num.messages"),
        (DECLARED, "consumer", "fetch.min.bytes", "0", "is '0'", "a whole number from 1 to 1"),
        (DECLARED, "consumer", "fetch.min.bytes", " 5", "is ' 5'", "a whole number from 1 to 1"),
        (DECLARED, "consumer", "fetch.min.bytes", "5.0", "is '5.0'", "a whole number from 1 to"),
        (DECLARED, "consumer", "fetch.min.bytes", "٣", "is '٣'", "a whole number from 1 to"),
        (DECLARED, "producer", "compression.type", "LZ4", "is 'LZ4'", "it must match none|gzip"),
        (BY_SPARK, "consumer", "queued.min.messages", "9", "Kafka's Java client", "leave it out"),
        (BY_SPARK, "producer", "fetch.min.bytes", "9", "set", "in the table 'consumer' beside"),
    ],
)
def test_a_refusal_says_what_to_do(scope, table, name, value, problem, remedy):
    message, way_out = setting_problem(scope, table, name, value)
    assert problem in message
    assert remedy in way_out


def test_every_kind_is_listed_by_its_plural_and_those_with_clients_have_a_table():
    assert [*FOLDERS] == [kind.plural for kind in kinds()]
    assert {*KINDS_WITH_CLIENTS} == {*FOLDERS} - {"topics"}
    assert BY_JAVA in KINDS_WITH_CLIENTS


@pytest.mark.parametrize(("kind", "table"), [*itertools.product(KINDS_WITH_CLIENTS, TABLES)])
def test_each_table_of_each_kind_is_checked_with_its_line(load, kind, table):
    text = f'[{kind}."b.idder".kafka.{table}]\n"Acks" = 1\n'
    with pytest.raises(ProjectError) as raised:
        load(text)
    [problem] = raised.value.problems
    assert f"{kind}.b.idder.kafka.{table}.Acks can't be set: a record" in str(problem)
    assert problem.line == len(HEAD.splitlines()) + 2


def test_an_unknown_key_beside_the_tables_is_refused(load):
    with pytest.raises(ProjectError, match=r"workers\.bidder\.kafka\.consumers .*'consumer'"):
        load("[workers.bidder.kafka.consumers]\n")


def test_a_declaration_has_what_all_have_unless_it_sets_something_else(load):
    settings = load(
        """\
        [kafka.client]
        client.rack = "a"
        [kafka.consumer]
        fetch.min.bytes = 1000
        fetch.wait.max.ms = 300
        [sites.waw.kafka.producer]
        compression.type = "zstd"
        [workers.bidder.kafka.client]
        client.id = "bidder"
        [workers.bidder.kafka.consumer]
        fetch.min.bytes = 1
        [workers.bidder.kafka.producer]
        linger.ms = 50
        """
    )
    own = settings.of("workers", "bidder")
    assert own.kafka.client == {"client.rack": "a", "client.id": "bidder"}
    assert own.kafka.consumer == {"fetch.min.bytes": "1", "fetch.wait.max.ms": "300"}
    assert own.kafka.producer == {"linger.ms": "50"}
    assert own.sites["waw"].producer == {"compression.type": "zstd", "linger.ms": "50"}
    assert settings.of("workers", "other") is settings
    assert settings.of("mirrors", "bidder") is settings
    assert settings.clients["workers", "bidder"] == ClientSettings(
        {"client.id": "bidder"}, {"fetch.min.bytes": "1"}, {"linger.ms": "50"}
    )
