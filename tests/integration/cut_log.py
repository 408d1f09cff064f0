"""The log of a partition that loses its newest records, and takes others at their offsets."""

import shutil

from tests.waiting import wait_for

from headrace.errors import BrokerUnreachableError
from headrace.kafka.client.offsets import latest_offsets
from headrace.model import TopicPartition


class CutLog:
    """Partition 0 of a topic on a broker of its own, whose disk goes back to what it was.

    Brokers do the same with a replica that was behind, when it becomes the leader.
    """

    def __init__(self, running, topic):
        self._cluster, self._partition = running.cluster, TopicPartition(topic, 0)
        self._client = {"bootstrap.servers": running.bootstrap_servers}
        self._data = running.folder / "kafka" / "node-1" / "data"
        self._log = self._data / f"{topic}-0"
        self._copy = running.folder / f"copy-{topic}"

    def remember(self):
        """Keeps the log as it is now. Nothing may be written meanwhile."""
        shutil.copytree(self._log, self._copy)

    def cut(self, *others):
        """Takes away what was written since, here and of other logs; waits for the next leaders.

        A broker that was killed comes back only after its session of 15 s; one that was stopped
        does at once, and looks at its logs as after a kill.
        """
        before = {log: log.leader_epoch() for log in (self, *others)}
        self._cluster.stop()
        (self._data / ".kafka_cleanshutdown").unlink()
        for log in before:
            shutil.rmtree(log._log)
            log._copy.rename(log._log)
        self._cluster.start_broker(1)
        wait_for(lambda: all(log.leader_epoch() > epoch for log, epoch in before.items()))

    def leader_epoch(self):
        try:
            return latest_offsets(self._client, [self._partition])[self._partition][1]
        except BrokerUnreachableError:
            return -1
