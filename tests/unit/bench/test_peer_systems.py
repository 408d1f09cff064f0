"""What peers are told, and how far they are, without any of them running."""

import json
import signal
import subprocess
from dataclasses import replace
from fractions import Fraction
from functools import partial

import pytest
from bench.peers import flink_match, flink_sql, kafka_connect, kafka_workers, programs, progress
from bench.peers.contest import FROM, UNTIL
from bench.peers.java_program import locked_version, write_properties
from bench.peers.programs import Conversation
from bench.peers.record.job import Job, argument
from bench.peers.record.systems import record_task
from bench.peers.relock import ROOTS
from bench.peers.writer import BATCHES
from bench.setup import Setup


@pytest.fixture
def setup(tmp_path):
    return Setup(
        bootstrap="127.0.0.1:9092",
        topic="impressions",
        messages=2_000_000,
        partitions=4,
        threads=2,
        batch_records=400_000,
        heap_mb=64,
        java={},
        connector=(),
        logs=tmp_path,
        commit_every_ms=4_000,
    )


def test_every_commit_is_told_once_and_the_last_one_ends_it(monkeypatch):
    monkeypatch.setattr(progress, "LOOK_SECONDS", 0)
    seen = iter([0, 3, 3, 7, 10, 11])
    told = []
    progress.follow(lambda: next(seen), 10, told.append, lambda: None)
    assert told == [3, 7, 10]


def test_waiting_ends_when_nothing_is_committed_any_more(monkeypatch):
    monkeypatch.setattr(progress, "LOOK_SECONDS", 0)
    monkeypatch.setattr(progress, "STALL_SECONDS", 0)
    with pytest.raises(RuntimeError, match="3 of 10"):
        progress.follow(lambda: 3, 10, lambda _: None, lambda: None)


def test_a_batch_is_committed_at_both_ends_of_what_is_measured():
    """Else a system with large commits would be measured over less than another."""
    assert (Fraction(str(FROM)) * BATCHES).denominator == 1
    assert 1 / BATCHES <= FROM < UNTIL <= 1 - 1 / BATCHES


def test_kafka_workers_threads_and_files_are_those_of_the_setup(setup, tmp_path):
    told = kafka_workers.properties(setup, tmp_path / "out", kafka_workers.parquet_task)
    assert told["worker.threads.num"] == "2"
    assert told["worker.task.roll.records"] == "100000"
    assert told["consumer.kafka.group.id"] == "out"
    assert told["worker.processing.guarantee"] == "at_least_once"


def test_a_record_task_has_the_jobs_lanes_and_work(setup, tmp_path):
    job = Job(setup.bootstrap, setup.topic, "call", subpartitions=16, threads=2)
    told = kafka_workers.properties(setup, tmp_path / "out", partial(record_task, job=job))
    assert told["worker.task.lanes"] == "16"
    assert (told["worker.task.work"], told["worker.task.work.us"]) == ("call", "5000")


def test_a_program_is_told_all_of_its_job():
    job = Job("127.0.0.1:9092", "records", "cpu", subpartitions=1, threads=2)
    assert Job(**json.loads(argument(job, "round-1"))) == replace(job, group="round-1")


def test_connects_tasks_are_the_threads(setup, tmp_path):
    told = kafka_connect.connector(setup, tmp_path, "control")
    assert told["tasks.max"] == "2"
    assert told["iceberg.control.commit.interval-ms"] == "4000"


def snapshot(folder, version, snapshots, current):
    document = {
        "current-snapshot-id": current,
        "snapshots": [
            {"snapshot-id": name, "summary": {"total-records": str(rows)}}
            for name, rows in snapshots.items()
        ],
    }
    (folder / f"v{version}.metadata.json").write_text(json.dumps(document))
    (folder / "version-hint.text").write_text(str(version))


def test_the_rows_of_an_iceberg_table_are_its_current_snapshots(tmp_path):
    folder = tmp_path / "bench" / kafka_connect.TABLE / "metadata"
    folder.mkdir(parents=True)
    table = kafka_connect.Snapshots(tmp_path)
    found = []
    for version, (snapshots, current) in enumerate(
        [({}, -1), ({7: 100}, 7), ({7: 100, 3: 250}, 3)]
    ):
        snapshot(folder, version, snapshots, current)
        found += [table.rows(), table.rows()]
    assert found == [0, 0, 100, 100, 250, 250]


def test_the_rows_are_those_of_before_while_iceberg_replaces_its_version_hint(tmp_path):
    folder = tmp_path / "bench" / kafka_connect.TABLE / "metadata"
    folder.mkdir(parents=True)
    table = kafka_connect.Snapshots(tmp_path)
    snapshot(folder, 1, {7: 100}, 7)
    assert table.rows() == 100
    (folder / "version-hint.text").unlink()
    assert table.rows() == 100
    snapshot(folder, 2, {7: 100, 3: 250}, 3)
    assert table.rows() == 250


def test_flinks_statements_name_the_topic_and_the_folder(setup, tmp_path):
    text = flink_sql.statements(setup, tmp_path / "out")
    assert "'topic' = 'impressions'" in text
    assert (tmp_path / "out").as_uri() in text
    assert text.count(";\n") == 2


def test_flinks_match_job_names_its_topics_and_its_group(setup, monkeypatch):
    monkeypatch.setattr(flink_match, "count_of_rules", lambda _, topic: {"rules-topic": 7}[topic])
    told = flink_match.job(setup, "round-1", "rules-topic", "round-1-matches", is_indexed=True)
    assert told == flink_match.CONSUMER | {
        "bootstrap": setup.bootstrap,
        "group": "round-1",
        "events": "impressions",
        "rules": "rules-topic",
        "rules.index": "true",
        "rules.count": "7",
        "matches": "round-1-matches",
    }


def test_later_properties_win(tmp_path):
    file = write_properties(tmp_path / "p", {"a": "1", "b": "2"}, {"b": "3"})
    assert file.read_text() == "a=1\nb=3\n"


SHELL = "while read line; do echo $line; [ $line = end ] && exit; done"


def test_another_answer_than_the_expected_one_is_an_error():
    pipe = subprocess.PIPE
    with subprocess.Popen(["sh", "-c", SHELL], stdin=pipe, stdout=pipe, text=True) as process:
        program = Conversation(process)
        program.ask("started", "started")
        program.check()
        with pytest.raises(RuntimeError, match="'end' was answered by 'end', not 'stopped'"):
            program.ask("end", "stopped")
    with pytest.raises(RuntimeError, match="ended with code 0"):
        program.check()


def test_a_program_that_does_not_listen_has_ended_too():
    deaf = "trap '' TERM; echo ready; while :; do sleep 0.1; done"
    with subprocess.Popen(["sh", "-c", deaf], stdout=subprocess.PIPE, text=True) as process:
        process.stdout.readline()
        programs.end(process, max_wait_seconds=0.1)
        assert process.returncode == -signal.SIGKILL


def test_every_root_of_the_peers_is_locked():
    roots = {(group, name) for group, one in ROOTS.items() for _, name, _ in one.jars}
    assert all(map(partial(lambda pair: locked_version(*pair)), roots))
