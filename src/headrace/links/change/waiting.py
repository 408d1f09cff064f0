"""Records of the old topic that wait in retry topics: a reader of the new one does not see them."""

from __future__ import annotations

from headrace.kafka.client.admin_requests import describe
from headrace.kafka.client.offsets import group_offsets, watermarks
from headrace.kafka.read.range_reader import read_records
from headrace.links.change.plan import ChangePlan
from headrace.model import OffsetRange
from headrace.workers.declaration import Worker
from headrace.workers.tasks.retry_topics import consumed_topics, retry_topics


def waiting_records(plan: ChangePlan, worker: Worker) -> int:
    """Returns how many records of the old topic wait in retry topics of a worker.

    They are read and counted: behind the last one may be markers of transactions.

    Raises:
        BrokerUnreachableError: if the brokers do not answer.
        AuthorizationError: if an ACL is missing.
    """
    names = [name for name, origin in retry_topics(worker).items() if origin == plan.old]
    if not names:
        return 0
    live = describe(plan.source, names)
    marks = watermarks(plan.source, {at for topic in live.values() for at in topic.all_partitions})
    [group] = consumed_topics(worker).keys() - {worker.consumer_group}
    read = group_offsets(plan.source, group, marks)
    ranges = [
        OffsetRange(place, min(end, max(first, read.get(place, 0))), end)
        for place, (first, end) in marks.items()
    ]
    return sum(1 for _ in read_records(plan.source, plan.group, ranges))
