"""Runs instances of mirrors and mergers, and writes what those of all transfers do."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

from headrace.control.mergers import plan_of
from headrace.control.mirrors import link_of
from headrace.control.project import LoadedProject
from headrace.control.status_folders import merger_folder, mirror_folder
from headrace.errors import DispatcherRunningError, MatchedEventsRunningError
from headrace.merger.declaration import Merger
from headrace.merger.instance import MergerInstance
from headrace.merger.status import MergerStatus
from headrace.mirror.declaration import Mirror
from headrace.mirror.instance import MirrorInstance
from headrace.mirror.status import MirrorStatus
from headrace.runtime.prometheus import serving
from headrace.transfer.prometheus import exposition
from headrace.transfer.status import Status, TransferState, TransferStatus, TransferStatusFolder

_LOG = logging.getLogger("headrace.transfer")
_OBSERVE_SECONDS = 1.0
_RUNS_ALREADY = (DispatcherRunningError, MatchedEventsRunningError)
AnyStatus = TypeVar("AnyStatus", bound=TransferStatus, covariant=True)  # noqa: PLC0105


@dataclass(frozen=True)
class TransferRunOptions:
    """How an instance is to run.

    Attributes:
        metrics_host: where its metrics are served.
        metrics_port: the port; ``None``: they are not.
    """

    metrics_host: str = "127.0.0.1"
    metrics_port: int | None = None


class _Instance(Protocol[AnyStatus]):
    def stop(self) -> None: ...

    def run(self, observe: Callable[[Any], None]) -> None: ...

    def status(self) -> AnyStatus: ...


class TransferRun(Generic[Status]):
    """One instance in this process, with its status for others to see. Used once.

    Args:
        name: of the mirror, merger or dispatcher.
        instance: that is to run.
        folder: of its status.
        options: how it is to run.
    """

    def __init__(
        self,
        name: str,
        instance: _Instance[Status],
        folder: TransferStatusFolder[Status],
        options: TransferRunOptions,
    ) -> None:
        self._name, self._instance, self._folder, self._options = name, instance, folder, options
        self._has_written = False

    def stop(self) -> None:
        """Ends it: what is in a transaction is committed. From any thread."""
        self._instance.stop()

    def run(self, observe: Callable[[Status], None]) -> None:
        """Runs it until it is stopped; ``observe`` is called every second and at the end.

        Where another instance runs already, this one is refused, and writes and deletes no status.

        Raises:
            ServerStartError: if the port of the metrics is taken.
            HeadraceError, KafkaException: as :meth:`TransferInstance.run`.
        """
        seen_at = 0.0
        with serving(self._options.metrics_host, self._options.metrics_port) as server:

            def show(status: Status) -> None:
                self._write(status)
                if server is not None:
                    server.publish(exposition(status))
                observe(status)

            def seen(_: object) -> None:
                nonlocal seen_at
                if time.monotonic() - seen_at >= _OBSERVE_SECONDS:
                    seen_at = time.monotonic()
                    show(self._instance.status())

            _LOG.info("%s: begins", self._name)
            try:
                self._instance.run(seen)
            except BaseException as error:
                reason = str(error) or type(error).__name__
                failed = replace(self._instance.status(), state=TransferState.FAILED, reason=reason)
                # Who was refused before it began never was an instance that could have failed.
                if self._has_written or not isinstance(error, _RUNS_ALREADY):
                    self._write(failed)
                _LOG.error("%s: failed: %s", self._name, reason)
                raise
            ended = replace(self._instance.status(), state=TransferState.STOPPED, reason="")
            show(ended)
            _LOG.info("%s: stopped, %d records written", self._name, ended.records)

    def _write(self, status: Status) -> None:
        """Writes the status; the first one replaces what ended instances have left."""
        if not self._has_written:
            # Not before: an instance that is silent while Spark starts would be taken for ended.
            self._folder.forget(self._name)
            self._has_written = True
        self._folder.write(status)


def mirror_run(
    project: LoadedProject, mirror: Mirror, options: TransferRunOptions
) -> TransferRun[MirrorStatus]:
    """Returns an instance of a mirror. Raises as :func:`link_of`."""
    merged = {topic.name for merger in project.mergers.values() for topic in merger.sources}
    tells_times = any(topic.name in merged for topic in mirror.topics.values())
    instance = MirrorInstance(link_of(project.settings, mirror, tells_times=tells_times))
    return TransferRun(mirror.name, instance, mirror_folder(project.settings), options)


def merger_run(
    project: LoadedProject, merger: Merger, options: TransferRunOptions
) -> TransferRun[MergerStatus]:
    """Returns an instance of a merger. Raises as :func:`plan_of`."""
    instance = MergerInstance(plan_of(project, merger))
    return TransferRun(merger.name, instance, merger_folder(project.settings), options)
