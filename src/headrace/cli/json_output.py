"""Output for programs: one JSON document a command; while pipelines run, one a line."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.encoding import print_json
from headrace.cli.output import Live, Observer
from headrace.cli.token_view import rfc3339
from headrace.errors import HeadraceError, ProjectError

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

REPORT_SECONDS = 1.0


class JsonOutput:
    """See :class:`headrace.cli.output.Output`. Everything goes to stdout, errors too."""

    def show(self, result: object) -> None:
        print_json(result)

    def live(self, progress: Live[Observer]) -> AbstractContextManager[Observer]:
        return progress.in_json(print_json)

    def failed(self, error: HeadraceError) -> None:
        kind = getattr(error, "code", type(error).__name__)
        _print({"error": kind, "message": str(error), "problems": _problems(error)})

    def crashed(self, error: BaseException, log: Path) -> None:
        _print({"error": type(error).__name__, "message": str(error), "log": str(log)})

    def version(self, versions: Mapping[str, str]) -> None:
        _print(dict(versions))

    def created(self, folder: Path, files: Sequence[str]) -> None:
        _print({"folder": str(folder), "files": list(files)})

    def checked(self, project: LoadedProject) -> None:
        _print(
            {
                "project": project.settings.name,
                "topics": list(project.topics),
                "pipelines": list(project.pipelines),
                "workers": list(project.workers),
                "problems": [],
                "warnings": [asdict(one) for one in project.warnings],
            }
        )

    def planned(self, plan: Plan) -> None:
        _print(asdict(plan))

    def applied(self, plan: Plan) -> None:
        _print(asdict(plan))

    @contextmanager
    def fetching(self) -> Iterator[Progress]:
        yield lambda *_: None

    def services(self, services: Services) -> None:
        _print(_services(services))

    def status(
        self,
        services: Services,
        pipelines: Sequence[PipelineProgress],
        workers: Sequence[WorkerProgress],
    ) -> None:
        found = {
            "pipelines": [one.to_json() for one in pipelines],
            "workers": [one.to_json() for one in workers],
        }
        _print(_services(services) | found)

    def running(self) -> AbstractContextManager[Observe]:
        return _reporting()

    def ended(self, outcomes: Mapping[str, PipelineProgress]) -> None:
        _print({"event": "ended", "pipelines": [one.to_json() for one in outcomes.values()]})

    def stopping(self, worker: str = "") -> None:
        told = {"worker": {"worker": worker, "state": "draining"}} if worker else {}
        _print({"event": "stopping"} | told, indent=None)

    def working(self) -> AbstractContextManager[ObserveWorker]:
        return _working()

    def workers(self, workers: Sequence[WorkerStanding]) -> None:
        found = [asdict(one) | {"paused_partitions": one.paused_partitions} for one in workers]
        _print({"workers": found})

    def forgotten(self, reset: Reset, *, dry_run: bool) -> None:
        _print(asdict(reset) | {"dry_run": dry_run})

    def compacted(self, table: str, result: CompactionResult) -> None:
        _print({"table": table} | asdict(result))

    def checkpoint(self, pipeline: str, standing: Standing) -> None:
        _print({"pipeline": pipeline} | asdict(standing))

    def paused(self, name: str, partitions: Sequence[str], *, kind: str = "pipeline") -> None:
        _print({kind: name, "paused_partitions": list(partitions)})

    def letter_counts(self, topics: Sequence[TopicLetters]) -> None:
        _print({"topics": [asdict(one) for one in topics]})

    def letters(self, letters: Sequence[StoredLetter]) -> None:
        _print({"dead_letters": [_letter(one) for one in letters]})

    def letter(self, stored: Sequence[StoredLetter]) -> None:
        _print({"dead_letters": [_letter(one) | _content(one) for one in stored]})

    def replayed(self, topic: str, replay: Replay, *, dry_run: bool) -> None:
        _print({"topic": topic, "dry_run": dry_run} | asdict(replay))

    def serving(self, config: IngestConfig) -> None:
        settings = config.settings
        address = f"http://{settings.host}:{settings.port}"
        _print(
            {"address": address, "workers": settings.workers, "topics": list(config.topics)},
            indent=None,
        )

    def token(self, token: Token, text: str) -> None:
        _print(_token(token) | {"token": text})

    def tokens(self, tokens: Sequence[Token], unreadable: Sequence[str] = ()) -> None:
        _print({"tokens": [_token(one) for one in tokens], "unreadable": [*unreadable]})

    def namesakes(self, name: str, public_ids: Sequence[str]) -> None:
        text = f"other tokens are named {name!r}, too: {', '.join(public_ids)}"
        click.echo(text, err=True)

    def spools(self, spools: Sequence[TopicSpool]) -> None:
        _print({"spools": [asdict(one) for one in spools]})

    def spool_replayed(self, changes: Sequence[SpoolChange], *, dry_run: bool) -> None:
        _print({"dry_run": dry_run, "replayed": [asdict(one) for one in changes]})

    def spool_dropped(self, changes: Sequence[SpoolChange], *, dry_run: bool) -> None:
        _print({"dry_run": dry_run, "dropped": [asdict(one) for one in changes]})

    def measuring(self) -> OnRun:
        return lambda *_: None

    def sized(
        self, load: Load, size: Size, catch_up: CatchUp | None, measured: Measurement | None
    ) -> None:
        more = {
            "catch_up": catch_up and asdict(catch_up),
            "measured": measured and asdict(measured),
        }
        _print(_plain(asdict(load) | asdict(size) | more))

    @contextmanager
    def loading(self) -> Iterator[OnBatch]:
        yield lambda _: None

    def loaded(self, source: str, figures: Figures, *, dry_run: bool) -> None:
        facts = {name: one for name, one in vars(figures).items() if name not in {"done", "file"}}
        holes = [{"first": start, "last": end - 1} for start, end in figures.done.holes]
        _print({"source": source, "dry_run": dry_run, **facts, "holes": holes})


@contextmanager
def _reporting() -> Iterator[Observe]:
    last = 0.0

    def observe(progress: Mapping[str, PipelineProgress]) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= REPORT_SECONDS:
            last = now
            found = [one.to_json() for one in progress.values()]
            _print({"event": "progress", "pipelines": found}, indent=None)

    yield observe


@contextmanager
def _working() -> Iterator[ObserveWorker]:
    """A line a second while it runs, and one when it has ended."""

    def observe(progress: WorkerProgress) -> None:
        event = "ended" if progress.final else "progress"
        _print({"event": event, "worker": progress.to_json()}, indent=None)

    yield observe


def _print(document: object, *, indent: int | None = None) -> None:
    click.echo(json.dumps(document, indent=indent, ensure_ascii=False, default=str))


def _problems(error: HeadraceError) -> list[dict[str, Any]]:
    return [asdict(one) for one in error.problems] if isinstance(error, ProjectError) else []


def _services(services: Services) -> dict[str, Any]:
    return {
        "kafka": {
            "bootstrap_servers": services.bootstrap_servers,
            "embedded": services.embedded_kafka,
        },
        "lake": services.lake,
        "servers": [asdict(one) | {"running": one.running} for one in services.servers],
    }


def _plain(value: Any) -> Any:
    """Fractions as numbers, durations in seconds under a name that says so."""
    if isinstance(value, Fraction):
        return value.numerator if value.denominator == 1 else float(value)
    if isinstance(value, dict):
        return {
            f"{name}_seconds" if isinstance(one, timedelta) else name: _plain(one)
            for name, one in value.items()
        }
    return value.total_seconds() if isinstance(value, timedelta) else value


def _token(token: Token) -> dict[str, Any]:
    facts = asdict(token) | {"state": token.state(datetime.now(UTC))}
    for secret in ("secret_sha256", "former_sha256"):
        del facts[secret]
    times = ("created", "expires", "revoked", "former_until")
    return facts | {name: facts[name] and rfc3339(facts[name]) for name in times}


def _letter(stored: StoredLetter) -> dict[str, Any]:
    letter = stored.letter
    return {
        "record": stored.origin,
        "reason": letter.reason,
        "detail": letter.detail,
        "pipeline": stored.pipeline,
        "version": stored.version,
        "replays": stored.replays,
        "timestamp_ms": letter.timestamp_ms,
        "written_ms": stored.written_ms,
    }


def _content(stored: StoredLetter) -> dict[str, Any]:
    letter = stored.letter
    headers = [{"name": name, **_bytes("value", value)} for name, value in letter.headers]
    return _bytes("key", letter.key) | _bytes("value", letter.value) | {"headers": headers}


def _bytes(name: str, content: bytes | None) -> dict[str, str | None]:
    """As text where it is text, else in base64 under another name."""
    if content is None:
        return {name: None}
    try:
        return {name: content.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(content).decode()}
