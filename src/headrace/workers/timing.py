from __future__ import annotations

from dataclasses import dataclass

from headrace.kafka.client.clients import MESSAGE_TIMEOUT_MS


@dataclass(frozen=True)
class WorkerTiming:
    """How long an instance waits for what it calls, where its worker declares nothing.

    Attributes:
        min_enter_seconds: a lifespan may take this long to be entered, however short
            ``processing_timeout`` is.
        leave_seconds: a lifespan may take this long to be left.
        init_seconds: ``init`` of a task may take this long, however short ``processing_timeout``
            is: it may connect to services.
        close_seconds: ``close`` of a task may take this long.
        grace_seconds: a call that was cancelled may take this long to clean up.
        hanging_seconds: a call that was abandoned, because its partition was revoked or it took
            too long, may hold its thread for this time.
        topic_check_seconds: the interval of checks that the topics are still there; each is one
            metadata request of each instance.
        rejoin_seconds: the delay until a member rejoins its group.
        needed_topics_seconds: the interval of checks for topics that are not there yet.
        full_queue_seconds: a full queue of the producer is retried after this time: it has room
            within milliseconds, unless brokers are down.
        letter_lookup_seconds: lookups of dead letters wait for brokers no longer than writes.
        letter_retry_seconds: the delay between such lookups.
        reference_seconds: at its start, an instance waits for this long for the next record of a
            reference that is not read to its end.
        reference_retry_seconds: the delay between requests for the schema of a reference's record.
    """

    min_enter_seconds: float = 60.0
    leave_seconds: float = 10.0
    init_seconds: float = 60.0
    close_seconds: float = 10.0
    grace_seconds: float = 5.0
    hanging_seconds: float = 10.0
    topic_check_seconds: float = 5.0
    rejoin_seconds: float = 2.0
    needed_topics_seconds: float = 0.5
    full_queue_seconds: float = 0.01
    letter_lookup_seconds: float = MESSAGE_TIMEOUT_MS / 1000
    letter_retry_seconds: float = 1.0
    reference_seconds: float = 60.0
    reference_retry_seconds: float = 1.0
