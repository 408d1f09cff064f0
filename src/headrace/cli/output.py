"""What commands say, apart from how it looks: one interface, console and JSON behind it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from headrace.cli.screen import Screen

if TYPE_CHECKING:
    from headrace.control.checkpoints import Standing
    from headrace.control.letters import TopicLetters
    from headrace.control.measuring import Measurement, OnRun
    from headrace.control.plan import Plan
    from headrace.control.project import LoadedProject
    from headrace.control.services import Services
    from headrace.control.sizing import CatchUp, Load, Size
    from headrace.control.spools import SpoolChange, TopicSpool
    from headrace.control.worker_reset import Reset
    from headrace.control.workers import Observe as ObserveWorker
    from headrace.control.workers import WorkerStanding
    from headrace.errors import HeadraceError
    from headrace.ingest.config import IngestConfig
    from headrace.ingest.tokens.token import Token
    from headrace.kafka.dead_letters import StoredLetter
    from headrace.kafka.replay import Replay
    from headrace.offline_files import Figures, OnBatch
    from headrace.pipelines.progress import PipelineProgress
    from headrace.pipelines.runner import Observe
    from headrace.runtime.jars import Progress
    from headrace.sinks.api import CompactionResult
    from headrace.workers.monitoring.progress import WorkerProgress


Observer = TypeVar("Observer")
PrintLine = Callable[[object], None]
"""Prints a value as one line of JSON."""


@dataclass(frozen=True)
class Live(Generic[Observer]):
    """How the progress of a command is shown while it runs; each is a context of an observer.

    Attributes:
        on_screen: for people.
        in_json: for programs; is given a function that prints a value as a line.
    """

    on_screen: Callable[[Screen], AbstractContextManager[Observer]]
    in_json: Callable[[PrintLine], AbstractContextManager[Observer]]


class Output(Protocol):
    """Where values go that commands return; commands never format."""

    def show(self, result: object) -> None:
        """Shows what a command returned, or one of the values that it shows while it runs."""

    def live(self, progress: Live[Observer]) -> AbstractContextManager[Observer]:
        """Shows progress for as long as the context lasts."""

    def failed(self, error: HeadraceError) -> None:
        """A known error, with its way out."""

    def crashed(self, error: BaseException, log: Path) -> None:
        """An unexpected error; the traceback is in ``log``."""

    def version(self, versions: Mapping[str, str]) -> None:
        """Versions by name."""

    def created(self, folder: Path, files: Sequence[str]) -> None:
        """A new project."""

    def checked(self, project: LoadedProject) -> None:
        """A valid project."""

    def planned(self, plan: Plan) -> None:
        """What would be done."""

    def applied(self, plan: Plan) -> None:
        """What was done."""

    def fetching(self) -> AbstractContextManager[Progress]:
        """Progress of a download, if there is one."""

    def services(self, services: Services) -> None:
        """The project's servers."""

    def status(
        self,
        services: Services,
        pipelines: Sequence[PipelineProgress],
        workers: Sequence[WorkerProgress],
    ) -> None:
        """The project's servers, pipelines and workers."""

    def running(self) -> AbstractContextManager[Observe]:
        """Progress of pipelines while they run."""

    def ended(self, outcomes: Mapping[str, PipelineProgress]) -> None:
        """How pipelines ended."""

    def stopping(self, worker: str = "") -> None:
        """Asked to stop; called while :meth:`running` or :meth:`working`, by a signal."""

    def working(self) -> AbstractContextManager[ObserveWorker]:
        """Progress of a worker's instance while it runs."""

    def workers(self, workers: Sequence[WorkerStanding]) -> None:
        """Where workers stand."""

    def forgotten(self, reset: Reset, *, dry_run: bool) -> None:
        """What a worker had committed."""

    def compacted(self, table: str, result: CompactionResult) -> None:
        """Files of a table that were merged and removed."""

    def checkpoint(self, pipeline: str, standing: Standing) -> None:
        """Where a pipeline stands."""

    def paused(self, name: str, partitions: Sequence[str], *, kind: str = "pipeline") -> None:
        """Partitions of a pipeline, or a worker, that are held."""

    def letter_counts(self, topics: Sequence[TopicLetters]) -> None:
        """Dead letters, counted."""

    def letters(self, letters: Sequence[StoredLetter]) -> None:
        """Dead letters, each in a line."""

    def letter(self, stored: Sequence[StoredLetter]) -> None:
        """Dead letters of one record, in full."""

    def replayed(self, topic: str, replay: Replay, *, dry_run: bool) -> None:
        """Dead letters sent back."""

    def serving(self, config: IngestConfig) -> None:
        """The HTTP service is about to start."""

    def token(self, token: Token, text: str) -> None:
        """A token with its secret, this once."""

    def tokens(self, tokens: Sequence[Token], unreadable: Sequence[str] = ()) -> None:
        """Tokens without their secrets, and ids of tokens whose record can't be read."""

    def namesakes(self, name: str, public_ids: Sequence[str]) -> None:
        """Tokens that had the name of a new one before."""

    def spools(self, spools: Sequence[TopicSpool]) -> None:
        """What ingest keeps on this host."""

    def spool_replayed(self, changes: Sequence[SpoolChange], *, dry_run: bool) -> None:
        """Set-aside events that were put back."""

    def spool_dropped(self, changes: Sequence[SpoolChange], *, dry_run: bool) -> None:
        """Events that were removed from a spool."""

    def measuring(self) -> OnRun:
        """Progress of measurements."""

    def sized(
        self, load: Load, size: Size, catch_up: CatchUp | None, measured: Measurement | None
    ) -> None:
        """How large a topic must be, and what was measured for it."""

    def loading(self) -> AbstractContextManager[OnBatch]:
        """Progress of a load of offline files."""

    def loaded(self, source: str, figures: Figures, *, dry_run: bool) -> None:
        """What a load of offline files did."""
