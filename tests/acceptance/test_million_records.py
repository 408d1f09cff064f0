"""The state of a worker with a million records, while its instances are killed and frozen.

Drill C-14. At the end, each key's count in the state is how many records it has, and the output has
each record once, with the counts of each key in order. The report says how fast that was, and how
long restores of partitions took.
"""

from __future__ import annotations

import random
import statistics
import time
from collections import Counter

import pytest
from tests.drills.checker import id_of, payload_of
from tests.drills.ledger import topic_ends
from tests.drills.processes import Drill
from tests.waiting import FLUSH_SECONDS, wait_for, wait_for_drill

from headrace.kafka.client.clients import producer
from headrace.kafka.table.topic_table import table_records

INSTANCES = 3
RECORDS_OF_A_KEY = 10
SESSION_SECONDS = 4.0
SHOWN = 10  # of what is wrong
BROKER = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "1000"}
SPEC = {
    "exactly_once": True,
    "has_state": True,
    "notes_records": False,
    "lanes": 16,
    "work_seconds": 0.0,
    "session_seconds": SESSION_SECONDS,
}


@pytest.mark.drill
@pytest.mark.timeout(3000)
def test_a_million_records_are_counted_once_though_instances_are_killed_and_frozen(
    start_cluster, tmp_path, drill_run
):
    records = drill_run.size(short=20_000, long=1_000_000)
    faults = ["kill", "freeze"] * drill_run.size(short=2, long=25)
    drill_run.random.shuffle(faults)
    cluster = start_cluster(config=BROKER)
    with Drill(cluster.bootstrap_servers, tmp_path, **SPEC) as drill:
        expected = _sent(drill, records, drill_run.random)
        ends = topic_ends(drill.client, drill.topic)
        began = time.monotonic()
        drill.open(*[{}] * INSTANCES)
        moments = sorted(
            drill_run.random.sample(range(records // 20, records * 19 // 20), len(faults))
        )
        for fault, moment in zip(faults, moments, strict=True):
            _until_committed(drill, moment)
            _happen(drill, fault, drill_run.random)
        _until_committed(drill, records)
        seconds = time.monotonic() - began
        for instance in drill.running:
            assert instance.end() == 0, instance.errors.read_text()
        drill_run.report(
            records=records,
            keys=len(expected),
            kills=faults.count("kill"),
            freezes=faults.count("freeze"),
            records_a_second=round(records / seconds),
            **_restores(drill),
        )
        assert sum(ends.values()) == records
        assert drill.commits.latest == ends
        assert _wrong_counts(drill, expected)[:SHOWN] == []
        assert _wrong_output(drill, records)[:SHOWN] == []
    cluster.cluster.stop()


def _sent(drill: Drill, records: int, rng: random.Random) -> Counter[bytes]:
    """Sends all records; returns how many each key has."""
    sender, counts, failed = producer(drill.client), Counter[bytes](), []

    def answered(error, message) -> None:
        if error is not None:
            failed.append(error)

    for number in range(records):
        key = b"k-%d" % rng.randrange(records // RECORDS_OF_A_KEY)
        value = payload_of(f"r-{number}")
        counts[key] += 1
        while True:
            try:
                sender.produce(drill.topic, value, key, on_delivery=answered)
                break
            except BufferError:
                sender.poll(0.1)
        sender.poll(0)
    assert sender.flush(FLUSH_SECONDS) == 0
    assert failed == []
    return counts


def _until_committed(drill: Drill, records: int) -> None:
    def is_committed() -> bool:
        drill.check_running()
        return sum(drill.commits.latest.values()) >= records

    wait_for_drill(is_committed, lambda: f"{records} committed records: {drill.log()}")


def _happen(drill: Drill, fault: str, rng: random.Random) -> None:
    """One that has partitions is killed and replaced, or frozen: within its session or longer."""
    victim = rng.choice(wait_for(lambda: [one for one in drill.running if one.owned]))
    if fault == "kill":
        victim.kill()
        drill.start()
    else:
        victim.freeze()
        time.sleep(rng.uniform(0.1, 2.0) * SESSION_SECONDS)
        victim.thaw()


def _restores(drill: Drill) -> dict[str, object]:
    notes = [note for instance in drill.instances for note in instance.notes("restored")]
    seconds = [float(seconds) for _, (_, keys, seconds), _ in notes if int(keys)]
    return {
        "restores": len(seconds),
        "restore_p50": f"{statistics.median(seconds):.2f} s",
        "restore_max": f"{max(seconds):.2f} s",
    }


def _wrong_counts(drill: Drill, expected: Counter[bytes]) -> list[str]:
    """Keys whose count in the state is not how many records they have."""
    kept = drill.kept()
    return [
        f"{key}: {kept.get(key)}, not {expected[key]}"
        for key in kept.keys() | expected.keys()
        if kept.get(key) != expected[key]
    ]


def _wrong_output(drill: Drill, records: int) -> list[str]:
    """Records that readers of committed records see not once, or with another count."""
    seen, counts, wrong = bytearray(records), Counter[bytes](), []
    for record in table_records(drill.client, drill.spec.output, settled=True):
        name, key = id_of(record.value()), record.key()
        count = int(dict(record.headers())["count"])
        seen[int(name.removeprefix("r-"))] += 1
        counts[key] += 1
        if count != counts[key] or record.value() != payload_of(name):
            wrong.append(f"{name} of {key}: {count}, not {counts[key]}")
    return wrong + [f"r-{number}: {times} times" for number, times in enumerate(seen) if times != 1]
