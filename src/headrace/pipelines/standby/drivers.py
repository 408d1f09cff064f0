"""What the drivers of a pipeline write to its topic of leases beside claims, and who reads it.

A standby says once a second that it waits, and how warm it is. A request for a handover names the
lease that its holder releases. Neither decides who may run the pipeline: only claims do.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import msgspec

from headrace.errors import HandoverError
from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.table.changelog import write_changelog
from headrace.kafka.table.topic_table import table_records
from headrace.pipelines.declaration import Pipeline
from headrace.runtime.clock import now_in_ms
from headrace.service.leases import Lease, LeaseTable, LeaseTiming, read_claim

# Takes a lease within 3 s of the last renewal, so that a start of a second or two is in time. Of
# pauses of the JVM, and of a start that is slow, five minutes lose no lease. A driver that hands
# over leaves the lease to others for the time in which that of a dead one would expire.
TIMING = LeaseTiming(
    lease_ms=3_000,
    renew_seconds=0.5,
    margin_seconds=0.5,
    poll_seconds=0.05,
    retry_seconds=0.5,
    rest_seconds=3.0,
)
PIPELINE_SLOT = 0  # a pipeline is one slot
REQUEST_KEY = b"handover"
_STANDBY_KEY = "standby/"
_SHOWN_MS = 2 * TIMING.lease_ms  # a driver that has written nothing for this time is gone
_HANDOVER_SECONDS = 60.0  # twice as long as a batch may take at the end of a query
_LOOK_SECONDS = 0.2


class Standby(msgspec.Struct, frozen=True):
    """A driver that waits. Its record has the key ``standby/<holder>``, and is deleted at its end.

    Attributes:
        holder: its id in the leases.
        host: where it runs.
        warm_age_seconds: how long ago its last rehearsal has ended; ``None``: none has.
    """

    holder: str
    host: str
    warm_age_seconds: float | None = None

    @property
    def key(self) -> bytes:
        """The key of its record."""
        return f"{_STANDBY_KEY}{self.holder}".encode()


class HandoverRequest(msgspec.Struct, frozen=True):
    """A request to release the lease of ``holder``, whose record has the key ``handover``."""

    holder: str


# Made at import: msgspec crashes where several threads are the first to decode a class.
_STANDBY = msgspec.json.Decoder(Standby)
_REQUEST = msgspec.json.Decoder(HandoverRequest)


def read_standby(value: bytes) -> Standby | None:
    """Returns what a driver says of itself; ``None`` if the record is of another program."""
    try:
        return _STANDBY.decode(value)
    except (ValueError, RecursionError):
        return None


def read_request(value: bytes) -> HandoverRequest | None:
    """Returns a request for a handover; ``None`` if the record is of another program."""
    try:
        return _REQUEST.decode(value)
    except (ValueError, RecursionError):
        return None


@dataclass(frozen=True)
class Drivers:
    """The drivers of a pipeline that were started with ``--standby``.

    Attributes:
        active: the lease of the one that runs it; ``None``: none does.
        standbys: those that wait.
    """

    active: Lease | None = None
    standbys: tuple[Standby, ...] = ()

    @property
    def warm(self) -> tuple[Standby, ...]:
        """The standbys that have rehearsed."""
        return tuple(s for s in self.standbys if s.warm_age_seconds is not None)


def leases_topic(pipeline: Pipeline) -> str:
    """Returns the name of the topic with the leases of its drivers."""
    return f"{pipeline.consumer_group}.leases"


def read_drivers(config: ClientConfig, topic: str) -> Drivers:
    """Returns the drivers that a topic of leases names now; none if there is no such topic.

    Raises:
        AuthorizationError: if an ACL is missing.
        BrokerUnreachableError: if the brokers do not answer.
    """
    now_ms, table = now_in_ms(), LeaseTable(1, TIMING.lease_ms)
    standbys: dict[bytes, Standby] = {}
    for record in table_records(config, topic, "headrace.leases"):
        key, value, (_, time_ms) = record.key() or b"", record.value(), record.timestamp()
        if key.startswith(_STANDBY_KEY.encode()):
            standbys.pop(key, None)
            standby = read_standby(value or b"")
            if standby is not None and now_ms - time_ms <= _SHOWN_MS:
                standbys[key] = standby
            continue
        with suppress(ValueError):  # a request, or written by another program
            table.take(*read_claim(key, value), time_ms, now=0.0)
    active = table.lease(PIPELINE_SLOT)
    if active is not None and now_ms - active.renewed_ms > _SHOWN_MS:
        active = None
    holder = "" if active is None else active.holder
    return Drivers(active, tuple(s for s in standbys.values() if s.holder != holder))


def drivers_of(
    config: ClientConfig, pipelines: Iterable[Pipeline], topics: Collection[str]
) -> Mapping[str, Drivers]:
    """Returns the drivers of pipelines that have a topic of leases, by the pipelines' names.

    Args:
        config: librdkafka's settings of the cluster.
        pipelines: whose drivers they are.
        topics: names that have all topics of leases among them that exist.

    Raises:
        AuthorizationError: if an ACL is missing.
        BrokerUnreachableError: if the brokers do not answer.
    """
    leases = {pipeline.name: leases_topic(pipeline) for pipeline in pipelines}
    return {name: read_drivers(config, topic) for name, topic in leases.items() if topic in topics}


@dataclass(frozen=True)
class Handover:
    """A handover of a pipeline that was done.

    Attributes:
        pipeline: its name.
        from_host: where the driver runs that was active.
        to_host: where the driver runs that is active now.
        seconds: between the request and the new lease, with the rest of the batch that was running.
    """

    pipeline: str
    from_host: str
    to_host: str
    seconds: float


def hand_over(config: ClientConfig, pipeline: Pipeline) -> Handover:
    """Asks the active driver to release its lease after its batch; returns when another has it.

    Raises:
        HandoverError: if no driver is active or no standby is warm, and nothing was asked; or if
            no other driver is active within a minute.
        AuthorizationError: if an ACL is missing.
        BrokerUnreachableError: if the brokers do not answer.
    """
    name, topic = pipeline.name, leases_topic(pipeline)
    before = read_drivers(config, topic)
    if before.active is None:
        raise HandoverError(name, "no driver that was started with --standby runs it")
    if not before.warm:
        waiting = f"{len(before.standbys)} standby that is not warm yet" if before.standbys else ""
        raise HandoverError(name, f"it has {waiting or 'no standby'}")
    began = time.monotonic()
    request = HandoverRequest(before.active.holder)
    write_changelog(config, topic, {REQUEST_KEY: msgspec.json.encode(request)})
    while time.monotonic() - began < _HANDOVER_SECONDS:
        active = read_drivers(config, topic).active
        if active is not None and active.holder != before.active.holder:
            seconds = round(time.monotonic() - began, 1)
            return Handover(name, before.active.host, active.host, seconds)
        time.sleep(_LOOK_SECONDS)
    reason = f"the driver on {before.active.host} still has the lease after a minute"
    raise HandoverError(name, reason)
