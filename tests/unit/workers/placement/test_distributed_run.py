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
from headrace.kafka.group.subscription import Membership
from headrace.workers import DeadLetters, Retry, Stop
from headrace.workers.placement import distributed_run
from headrace.workers.placement.distributed_run import DistributedRun, is_permanent


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


def test_an_instance_reads_at_the_site_of_its_worker(monkeypatch):
    made = {}

    class MadeError(Exception):
        """The instance was made."""

    def instance(_, config, *, source, membership):
        made.update(config=config, source=source, id=membership.instance_id)
        raise MadeError

    monkeypatch.setattr(distributed_run, "WorkerInstance", instance)
    here, waw = {"bootstrap.servers": "here:1"}, {"bootstrap.servers": "waw:1"}
    for source, read in ((waw, waw), ({}, here)):
        run = DistributedRun(worker(Stop()), here, Membership("g"), "run", source)
        with pytest.raises(MadeError):
            run.instance(0)
        assert made == {"config": here, "source": read, "id": "enrich-0"}
