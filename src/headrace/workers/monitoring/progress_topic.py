"""Progress of instances, published through a topic to the program that started them."""

from __future__ import annotations

import json
import logging
import time
from dataclasses import asdict, replace
from datetime import timedelta
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from headrace.kafka.client.clients import ClientConfig, producer
from headrace.kafka.table.changelog import ensure_changelog
from headrace.kafka.table.topic_table import TableFollower
from headrace.runtime.clock import Clock, now_in_ms
from headrace.workers.monitoring.progress import final_counts_only
from headrace.workers.status import PartitionStatus, WorkerStatus

PROGRESS_TOPIC = "_headrace.progress"
"""Compacted, and deleted after minutes. Keys: ``<run>/<instance>``."""

_LOG = logging.getLogger("headrace.workers")
_KEPT = timedelta(minutes=10)
_REPORT_INTERVAL_SECONDS = 3.0  # ten reports may be lost before an instance counts as dead
_WARN_INTERVAL_SECONDS = 60.0  # an outage fails every report
_FLUSH_SECONDS = 5.0  # without its last report, an instance looks as if it was killed
# The next message replaces one that is lost, so none is worth waiting for.
_TUNING = {
    "acks": "1",
    "enable.idempotence": "false",
    "linger.ms": "5",
}


def ensure_progress_topic(config: ClientConfig) -> None:
    """Creates the topic unless it exists.

    Raises:
        BrokerUnreachableError: if the brokers do not answer.
    """
    ensure_changelog(config, PROGRESS_TOPIC, kept=_KEPT)


class ProgressReporter:
    """Reports the progress of one instance: every few seconds, and at once when its state changes.

    It never waits and never raises: what Kafka does not take is dropped.

    Args:
        config: of librdkafka.
        run: that the instance is part of.
        timeout_ms: what is not acknowledged within this time is dropped.
    """

    def __init__(self, config: ClientConfig, run: str, timeout_ms: int = 5_000) -> None:
        self._run = run
        self._sender = producer(config, _TUNING | {"message.timeout.ms": str(timeout_ms)})
        self._published: tuple[str, float] = "", 0.0
        self._complained = -_WARN_INTERVAL_SECONDS

    def report(self, progress: WorkerStatus) -> None:
        """Publishes progress when it is due; called about every second."""
        self._sender.poll(0)
        state, at = self._published
        if progress.state == state and time.monotonic() - at < _REPORT_INTERVAL_SECONDS:
            return
        self._published = progress.state, time.monotonic()
        partitions = [asdict(partition) for partition in progress.own]
        document = {"instance": progress.to_json(), "partitions": partitions}
        try:
            self._sender.produce(
                PROGRESS_TOPIC,
                json.dumps(document).encode(),
                f"{self._run}/{progress.instance}".encode(),
                on_delivery=self._delivered,
            )
        except (BufferError, KafkaException) as error:
            self._warn_throttled(error)

    def close(self) -> None:
        """Waits for the last report to be acknowledged, for a few seconds at most."""
        self._sender.flush(_FLUSH_SECONDS)

    def _delivered(self, error: KafkaError | None, _: confluent_kafka.Message) -> None:
        if error is not None:
            self._warn_throttled(error)

    def _warn_throttled(self, error: object) -> None:
        now = time.monotonic()
        if now - self._complained >= _WARN_INTERVAL_SECONDS:
            self._complained = now
            _LOG.warning("Failed to publish progress to %s: %s", PROGRESS_TOPIC, error)


class ProgressFollower:
    """Keeps the latest report of each instance of a run; follows the topic on its own thread."""

    def __init__(self, config: ClientConfig, run: str, clock: Clock = now_in_ms) -> None:
        self._clock = clock
        self._prefix = f"{run}/".encode()
        self._latest: dict[str, WorkerStatus] = {}
        self._grace_since_ms = 0
        self._follower = TableFollower(config, PROGRESS_TOPIC, self._on_change)

    def seen(self) -> list[WorkerStatus]:
        """Returns each instance by name: silent ones as failed, of ended ones only the counts."""
        return [self._now(progress) for _, progress in sorted(self._latest.copy().items())]

    def reset_liveness_timeout(self) -> None:
        """Counts silence from now on only, because the brokers did not answer until now."""
        self._grace_since_ms = self._clock()

    def close(self) -> None:
        """Stops following the topic."""
        self._follower.close()

    def _on_change(self, key: bytes, value: bytes | None) -> None:
        if value is not None and key.startswith(self._prefix):
            document: dict[str, Any] = json.loads(value)
            own = [PartitionStatus.from_json(partition) for partition in document["partitions"]]
            progress = WorkerStatus.from_json(document["instance"])
            # Silence is measured by the clock here: that of another machine may be wrong.
            progress = replace(progress, own=own, updated_ms=self._clock())
            self._latest[progress.instance] = progress

    def _now(self, progress: WorkerStatus) -> WorkerStatus:
        if not progress.has_ended:
            heard_ms = max(progress.updated_ms, self._grace_since_ms)
            progress = replace(progress, updated_ms=heard_ms).with_liveness()
        return final_counts_only(progress) if progress.has_ended else progress
