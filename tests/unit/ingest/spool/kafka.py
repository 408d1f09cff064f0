"""Stands in for Kafka where the loader sends."""

from collections.abc import Callable, Sequence
from typing import Any

from headrace.ingest.spool.loader import Send, SendResult
from headrace.ingest.spool.record import SpoolRecord


def taking(take: Callable[[Sequence[SpoolRecord]], Any]) -> Send:
    """Takes every record, or raises what ``take`` raises."""

    def send(records: Sequence[SpoolRecord], _: float) -> SendResult:
        take(records)
        return SendResult()

    return send
