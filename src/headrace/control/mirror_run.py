"""Runs an instance of a mirror, and shows how those of this machine are doing."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from headrace.control.mirrors import link_of
from headrace.mirror.declaration import Mirror
from headrace.mirror.instance import MirrorInstance
from headrace.mirror.prometheus import exposition
from headrace.mirror.status import MirrorState, MirrorStatus, MirrorStatusFolder
from headrace.runtime.prometheus import serving
from headrace.settings import Settings

Observe = Callable[[MirrorStatus], None]
_OBSERVE_SECONDS = 1.0


@dataclass(frozen=True)
class MirrorRunOptions:
    """How an instance is to run.

    Attributes:
        metrics_host: where its metrics are served.
        metrics_port: the port; ``None``: they are not.
    """

    metrics_host: str = "127.0.0.1"
    metrics_port: int | None = None


class MirrorRun:
    """One instance of a mirror in this process, with its status for others to see. Used once.

    Raises as :func:`link_of`.
    """

    def __init__(self, settings: Settings, mirror: Mirror, options: MirrorRunOptions) -> None:
        self._name, self._options = mirror.name, options
        self._instance = MirrorInstance(link_of(settings, mirror))
        self._folder = _status_folder(settings)

    def stop(self) -> None:
        """Ends it: what is in its transaction is committed. From any thread."""
        self._instance.stop()

    def run(self, observe: Observe) -> None:
        """Runs it until it is stopped; ``observe`` is called every second and at the end.

        Raises:
            ServerStartError: if the port of the metrics is taken.
            HeadraceError, KafkaException: as :meth:`MirrorInstance.run`.
        """
        self._folder.forget(self._name)
        seen_at = 0.0
        with serving(self._options.metrics_host, self._options.metrics_port) as server:

            def show(status: MirrorStatus) -> None:
                self._folder.write(status)
                if server is not None:
                    server.publish(exposition(status))
                observe(status)

            def seen(_: object) -> None:
                nonlocal seen_at
                if time.monotonic() - seen_at >= _OBSERVE_SECONDS:
                    seen_at = time.monotonic()
                    show(self._instance.status())

            try:
                self._instance.run(seen)
            except BaseException as error:
                reason = str(error) or type(error).__name__
                failed = replace(self._instance.status(), state=MirrorState.FAILED, reason=reason)
                self._folder.write(failed)
                raise
            show(replace(self._instance.status(), state=MirrorState.STOPPED))


def mirror_statuses(settings: Settings) -> list[MirrorStatus]:
    """Returns what every instance on this machine wrote last. Connects to nothing."""
    return _status_folder(settings).read()


def _status_folder(settings: Settings) -> MirrorStatusFolder:
    return MirrorStatusFolder(settings.state / "status" / "mirrors")
