"""Compares both ends of links."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from headrace.errors import HeadraceError
from headrace.ledger.balance import NotCountedError
from headrace.ledger.request import ReconcileRequest
from headrace.links.ledger.book import LinkBook, LinkCount, link_windows
from headrace.project.loaded import LoadedProject
from headrace.settings import environment
from headrace.spark.kafka_session import kafka_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NOT_COUNTED = "the records of both ends are counted with --recount"


class OpenEnds(Protocol):
    """Topics at both ends, such as a :class:`headrace.links.ledger.copies.CopiedTopic`."""

    def count(self, spark: SparkSession, window_seconds: int) -> LinkCount:
        """Counts the records of both ends.

        Raises:
            AuthorizationError: if an ACL is missing at a site.
            BrokerUnreachableError: if the brokers of a site do not answer.
            NotCountedError: if records were removed meanwhile, or can't be read.
        """


@dataclass(frozen=True)
class CountedEnds:
    """Both ends of what a link writes: of a mirror's topic, a merger, a target of a dispatcher.

    Attributes:
        book: with its names, and without windows.
        open: makes what is counted, with the clusters of both ends.
    """

    book: LinkBook
    open: Callable[[], OpenEnds]


def link_books(
    project: LoadedProject,
    links: Sequence[CountedEnds],
    request: ReconcileRequest,
) -> tuple[LinkBook, ...]:
    """Counts both ends of links and compares them. Changes nothing.

    A link whose records are not counted, since there is no ``recount`` or for whatever reason, is
    unknown. Of windows, those remain that are requested, by their start and length.

    Raises:
        JarError: if a jar of Spark's Kafka source can't be downloaded.
        JavaMissingError: if there is no Java.
    """
    if not request.recount:
        return tuple(replace(link.book, unknown=_NOT_COUNTED) for link in links)
    if not links:
        return ()
    with kafka_session(project.settings, "reconcile", environment()) as spark:
        return tuple(_book(link, spark, request) for link in links)


def _book(link: CountedEnds, spark: SparkSession, request: ReconcileRequest) -> LinkBook:
    seconds = link.book.window_seconds
    try:
        count = link.open().count(spark, seconds)
    except (HeadraceError, NotCountedError) as error:
        return replace(link.book, unknown=str(error))
    windows = link_windows(count, seconds, time.time())
    return replace(
        link.book,
        windows=tuple(window for window in windows if request.shows(window.start, seconds)),
        left_out=tuple(count.accepted),
        unknown="" if windows else "; ".join(count.unknown),
    )
