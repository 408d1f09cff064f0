"""A record passes few files of an instance: those that ARCHITECTURE.md names."""

import re
import sys
from pathlib import Path

from tests.integration.instances import drill
from tests.unit.workers.lanes import LaneBench, settled

import headrace
from headrace.model import Topic, TopicPartition
from headrace.testing.bench_instance import Message, SentRecord
from headrace.workers import Worker, worker
from headrace.workers.failures.failures import Failures
from headrace.workers.tasks.record import ConsumedRecord

MAX_FILES = 12
SOURCES = Path(headrace.__file__).parent
READING = {"kafka/group/subscription.py", "workers/consumer_group/group_consumer.py"}
DECLARED = "workers/tasks/task.py"  # what a record is


@worker(topic=Topic("t"))
async def keep(record):
    pass


class Letters:
    def on_rebalance(self, here):
        pass


def passed(count=9):
    """The files of workers in which code runs from where a record is read until it is done."""
    files = set()

    def note(frame, _event, _argument):
        file = Path(frame.f_code.co_filename)
        if file.is_relative_to(SOURCES / "workers"):
            files.add(file.relative_to(SOURCES).as_posix())

    async def run():
        failures = Failures(Worker("w", Topic("t"), keep.task), Letters(), None)
        bench = LaneBench(keep.task, failures=failures)
        await settled()
        at = TopicPartition("t", 0)
        sys.setprofile(note)
        try:
            for offset in range(count):
                message = Message(at, offset, SentRecord("t", b"v"), 0)
                bench.assignments.put(ConsumedRecord.of(message, {}))
            await settled()
        finally:
            sys.setprofile(None)
        assert bench.committable == count

    drill(run())
    return files - {DECLARED}


def test_a_record_passes_the_files_that_are_named():
    page = (SOURCES.parents[1] / "ARCHITECTURE.md").read_text(encoding="utf-8")
    _, walk = page.split("A record passes 12 files")
    named = re.findall(r"`((?:kafka|workers)/\S+\.py)`", walk.split("Functions of")[0])
    assert len(named) == MAX_FILES
    assert passed() == set(named) - READING
