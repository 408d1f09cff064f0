"""Which failures stop all instances of a run: those that another start would meet again."""

import pytest

from headrace import Topic, Worker, WorkerTask
from headrace.errors import (
    BrokerUnreachableError,
    CommittedOffsetError,
    DeadLetterLimitError,
    InstanceIdInUseError,
    LastCommitError,
    ProcessingFailedError,
    ProcessingTimeoutError,
    SubpartitionError,
    TopicMissingError,
)
from headrace.workers import DeadLetters, Retry, Stop
from headrace.workers.placement.distributed_run import is_permanent


def worker(policy):
    return Worker("enrich", Topic("clicks"), WorkerTask, on_failure=policy)


@pytest.mark.parametrize(
    "error",
    [
        ProcessingFailedError("clicks[0]@7 failed"),
        DeadLetterLimitError("enrich", "too many"),
        SubpartitionError("7 of 4"),
        CommittedOffsetError("headrace.enrich", "clicks", 0, 7, "recreated"),
    ],
)
def test_what_a_next_start_meets_again_is_permanent(error):
    assert is_permanent(worker(Stop()), error)


@pytest.mark.parametrize(
    "error",
    [
        TopicMissingError("clicks"),
        BrokerUnreachableError("127.0.0.1:9", "no answer"),
        InstanceIdInUseError("headrace.enrich", "enrich-0", "fenced"),
        LastCommitError("headrace.enrich", 7),
        ProcessingTimeoutError("a thread hangs; its record is a dead letter"),
    ],
)
def test_what_another_place_or_time_cures_is_not(error):
    assert not is_permanent(worker(Retry(then=DeadLetters())), error)


def test_a_time_out_is_permanent_where_the_worker_stops_at_it():
    assert is_permanent(worker(Retry(then=Stop())), ProcessingTimeoutError("not done"))
