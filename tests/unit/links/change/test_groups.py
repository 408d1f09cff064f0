"""What is known of a group before brokers are asked."""

from types import SimpleNamespace

import pytest

from headrace.errors import TopicChangeRefusedError
from headrace.links.change.groups import move_groups
from headrace.model import Guarantee, Topic
from headrace.workers import Worker, WorkerTask


def test_a_worker_with_a_state_does_not_move():
    worker = Worker("count", Topic("a"), WorkerTask, guarantee=Guarantee.EXACTLY_ONCE, state=int)
    plan = SimpleNamespace(old="a", new="b")
    with pytest.raises(TopicChangeRefusedError, match="of another name that reads b"):
        move_groups(plan, [worker], [worker.consumer_group], dry_run=True)
