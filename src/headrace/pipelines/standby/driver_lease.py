"""The lease of a driver on its pipeline, with what drivers say beside it."""

from __future__ import annotations

import socket
import time

import confluent_kafka
import msgspec

from headrace.kafka.client.clients import ClientConfig
from headrace.pipelines.standby.drivers import REQUEST_KEY, TIMING, Standby, read_request
from headrace.service.leases import LeaseTiming
from headrace.service.slot_lease import SlotLease

_SAY_SECONDS = 1.0


class DriverLease(SlotLease):
    """Holds the lease of a pipeline, or waits for it and says so. Used on any thread.

    Args:
        config: librdkafka's settings of the cluster.
        topic: the topic of the leases, which exists.
        timing: of the lease.
    """

    def __init__(self, config: ClientConfig, topic: str, timing: LeaseTiming = TIMING) -> None:
        self._said: Standby | None = None
        self._says = False
        self._warm_age_seconds: float | None = None
        self._said_at = 0.0
        self._request_offset, self._asked_term = -1, 0
        super().__init__(config, topic, 1, timing)

    @property
    def is_asked(self) -> bool:
        """Whether it has the lease, and a handover was requested since it got it."""
        return self._asked_term == self.term and self.slot is not None

    def wait_as_standby(self, warm_age_seconds: float | None) -> None:
        """Says that the driver waits, from now on once a second."""
        self._warm_age_seconds, self._says = warm_age_seconds, True

    def be_active(self) -> None:
        """Says no longer that it waits."""
        self._says = False

    def close(self) -> None:
        """Releases the lease, deletes what it has said, and ends the thread."""
        self._says = False
        super().close()

    def _take_other(self, message: confluent_kafka.Message) -> bool:
        if message.key() == REQUEST_KEY:
            # The topic is read again after an error: a request counts once.
            request, offset = read_request(message.value() or b""), message.offset()
            is_new = offset > self._request_offset
            self._request_offset = max(offset, self._request_offset)
            if is_new and request is not None and request.holder == self.holder:
                self._asked_term = self.term
            return request is not None
        return (message.key() or b"").startswith(b"standby/")

    def _say(self, sender: confluent_kafka.Producer) -> None:
        now = time.monotonic()
        if self._says and now - self._said_at >= _SAY_SECONDS:
            self._said_at = now
            self._said = Standby(self.holder, socket.gethostname(), self._warm_age_seconds)
            self._produce(sender, self._said.key, msgspec.json.encode(self._said))
        elif self._said is not None and not self._says:
            self._produce(sender, self._said.key, None)
            self._said = None
