"""Output for people: tables and colours on stdout, errors on stderr."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, TextColumn
from rich.progress import Progress as ProgressBar
from rich.table import Table

from headrace.cli import worker_view
from headrace.cli.output import Live, Observer
from headrace.cli.progress_view import loading, reporting, summary
from headrace.cli.screen import Screen, content_text, safe, time_text
from headrace.cli.token_view import token_cells
from headrace.cli.views import view
from headrace.control.sizing import GIB, KIB, MIB, TIB
from headrace.errors import HeadraceError, ProjectError
from headrace.kafka.topics import Action

if TYPE_CHECKING:
    from fractions import Fraction

    from headrace.control.checkpoints import Standing
    from headrace.control.letters import TopicLetters
    from headrace.control.measuring import Consumed, Measurement, OnRun, Produced
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

MOST_HOLES_SHOWN = 5
_SIGNS = {
    Action.CREATE: "[green]+",
    Action.ADD_PARTITIONS: "[yellow]~",
    Action.ALTER_CONFIG: "[yellow]~",
    Action.REFUSED: "[red]!",
}


class ConsoleOutput:
    """See :class:`headrace.cli.output.Output`."""

    def __init__(self) -> None:
        self._screen = Screen()
        self._out, self._err = self._screen.out, self._screen.err

    def show(self, result: object) -> None:
        view(result, self._screen)

    def live(self, progress: Live[Observer]) -> AbstractContextManager[Observer]:
        return progress.on_screen(self._screen)

    def failed(self, error: HeadraceError) -> None:
        if isinstance(error, ProjectError):
            for problem in error.problems:
                where = f"[bold]{escape(problem.file)}:{problem.line}[/]"
                self._err.print(f"{where}: {escape(problem.message)}", soft_wrap=True)
                if problem.way_out:
                    self._err.print(f"  [dim]{escape(problem.way_out)}", soft_wrap=True)
            self._err.print(f"[red]{len(error.problems)} problem(s).")
        else:
            self._err.print(f"[red]{escape(str(error))}", soft_wrap=True)

    def crashed(self, error: BaseException, log: Path) -> None:
        kind = type(error).__name__
        self._err.print(f"[red]Unexpected {kind}: {escape(str(error))}", soft_wrap=True)
        self._err.print(f"[dim]Details: {escape(str(log))}; or run again with --debug.")

    def version(self, versions: Mapping[str, str]) -> None:
        for name, version in versions.items():
            self._out.print(f"{name} {version}", highlight=False)

    def created(self, folder: Path, files: Sequence[str]) -> None:
        self._out.print(f"Created in [bold]{escape(str(folder))}[/]: {', '.join(files)}")
        self._out.print("\nNext:")
        if folder.resolve() != Path.cwd():
            self._out.print(f"  cd {escape(shlex.quote(str(folder)))}", soft_wrap=True)
        for command in ("up", "apply", "run"):
            self._out.print(f"  headrace {command}")
        self._out.print("[dim]README.md says how to send events.")

    def checked(self, project: LoadedProject) -> None:
        declared = f"{len(project.topics)} topic(s), {len(project.pipelines)} pipeline(s)"
        if project.workers:
            declared += f", {len(project.workers)} worker(s)"
        for one in project.warnings:
            where = f"[bold]{escape(one.file)}:{one.line}[/]"
            self._out.print(f"{where}: [yellow]{escape(one.message)}", soft_wrap=True)
            self._out.print(f"  [dim]{escape(one.way_out)}", soft_wrap=True)
        self._out.print(f"[green]Valid:[/] {declared}.")

    def planned(self, plan: Plan) -> None:
        if plan.broker_down:
            self._out.print(f"[yellow]{escape(plan.broker_down)}", soft_wrap=True)
            self._out.print("[yellow]Every topic is shown as declared.\n")
        for one in plan.warnings:
            self._out.print(f"[yellow]{escape(one.message)}", soft_wrap=True)
            self._out.print(f"  [dim]{escape(one.way_out)}", soft_wrap=True)
        self._changes(plan)
        self._sinks(plan)
        self._routes(plan)

    def applied(self, plan: Plan) -> None:
        self._changes(plan)
        done = len(plan.changes) - len(plan.refused)
        self._out.print(f"{done} change(s) made, {len(plan.refused)} refused.")

    def fetching(self) -> AbstractContextManager[Progress]:
        return _download(self._err)

    def services(self, services: Services) -> None:
        kafka = services.bootstrap_servers or "not started yet (`headrace up`)"
        self._out.print(f"Kafka  {escape(kafka)}", highlight=False, soft_wrap=True)
        lake = services.lake or "not started yet (`headrace up`)"
        self._out.print(f"Lake   {escape(lake)}", highlight=False, soft_wrap=True)
        for one in services.servers:
            state = f"[green]up[/], process {one.pid}" if one.running else "[red]down"
            self._out.print(f"  {one.name} {escape(one.address)}: {state}", highlight=False)

    def status(
        self,
        services: Services,
        pipelines: Sequence[PipelineProgress],
        workers: Sequence[WorkerProgress],
    ) -> None:
        self.services(services)
        if pipelines:
            self._out.print(summary(pipelines))
        if workers:
            self._out.print(worker_view.summary(workers))
        if not pipelines and not workers:
            self._out.print("Nothing has run yet (`headrace run`, `headrace workers run`).")

    def running(self) -> AbstractContextManager[Observe]:
        return reporting(self._out)

    def ended(self, outcomes: Mapping[str, PipelineProgress]) -> None:
        self._out.print(summary(list(outcomes.values())))

    def stopping(self, worker: str = "") -> None:  # noqa: ARG002 - a person knows what runs here
        self._err.print("Stopping after what is in process; again to stop at once.")

    def working(self) -> AbstractContextManager[ObserveWorker]:
        return worker_view.reporting(self._out)

    def workers(self, workers: Sequence[WorkerStanding]) -> None:
        table = _table("worker", "topics", "group", "members", "lag", "behind s", "paused")
        for one in workers:
            group, paused = one.group, ", ".join(one.paused_partitions)
            lag, behind = f"{one.lag_records:,}", f"{one.lag_seconds:,.0f}"
            members = ", ".join(member.name for member in group.members)
            cells = (one.worker, ", ".join(one.topics), group.state, members)
            table.add_row(*map(escape, cells), lag, behind, escape(paused))
        self._out.print(table)
        for one in workers:
            if one.missing_topics:
                missing = escape(", ".join(one.missing_topics))
                self._out.print(f"[yellow]{escape(one.worker)}: no topic {missing} yet")

    def forgotten(self, reset: Reset, *, dry_run: bool) -> None:
        name, verb = escape(reset.worker), "would begin" if dry_run else "begins"
        table = _table("partition", "committed", "begins at")
        for partition, offset in reset.begins.items():
            table.add_row(escape(partition), str(reset.committed.get(partition, "")), str(offset))
        self._out.print(table)
        self._out.print(
            f"{name} (group {escape(reset.group)}) {verb} there: {reset.repeated:,} records are "
            f"processed again, {reset.skipped:,} are skipped.",
            highlight=False,
            soft_wrap=True,
        )

    def compacted(self, table: str, result: CompactionResult) -> None:
        self._out.print(
            f"Table {escape(table)}: {result.merged} small files merged into {result.written}, "
            f"{result.vacuumed} dead ones removed."
        )

    def checkpoint(self, pipeline: str, standing: Standing) -> None:
        where = standing.checkpoint or "none yet"
        begins = f", begins at {standing.start}" if standing.start and not standing.begun else ""
        self._out.print(f"[bold]{escape(pipeline)}[/]: checkpoint {escape(where)}{begins}")
        table = _table("partition", "table", "committed", "earliest", "latest")
        for one in standing.positions:
            offsets = (one.table, one.committed, one.earliest, one.latest)
            texts = ("none" if offset is None else str(offset) for offset in offsets)
            table.add_row(one.partition, *texts)
        self._out.print(table)

    def paused(self, name: str, partitions: Sequence[str], *, kind: str = "pipeline") -> None:  # noqa: ARG002 - for programs
        held = ", ".join(partitions) or "none"
        self._out.print(f"{escape(name)}, paused partitions: {escape(held)}", highlight=False)

    def letter_counts(self, topics: Sequence[TopicLetters]) -> None:
        table = _table("topic", "dead letters", "waiting", "reasons", "latest")
        for one in topics:
            reasons = ", ".join(f"{name} {count}" for name, count in one.reasons.items())
            latest = time_text(one.latest_ms)
            table.add_row(one.topic, str(one.count), str(one.waiting), reasons, latest)
        self._out.print(table)

    def letters(self, letters: Sequence[StoredLetter]) -> None:
        table = _table("record", "reason", "pipeline", "written", "detail")
        for one in letters:
            written, reason = time_text(one.written_ms), one.letter.reason
            detail = safe(one.letter.detail)
            table.add_row(one.origin, reason, one.pipeline, written, detail)
        self._out.print(table)

    def letter(self, stored: Sequence[StoredLetter]) -> None:
        for one in stored:
            self._letter(one)

    def replayed(self, topic: str, replay: Replay, *, dry_run: bool) -> None:
        verb = "would be sent" if dry_run else "sent"
        self._out.print(
            f"{replay.sent} {verb} to {escape(topic)}, {replay.already} replayed before, "
            f"{replay.given_up} given up."
        )
        for name, count in sorted(replay.readers.items()):
            self._out.print(f"  {count} for {escape(name)}")

    def serving(self, config: IngestConfig) -> None:
        settings = config.settings
        where = f"http://{settings.host}:{settings.port}"
        self._out.print(f"Serving {where} with {settings.workers} worker(s):", highlight=False)
        for name in config.topics:
            self._out.print(f"  POST {where}/v1/topics/{escape(name)}/events", highlight=False)

    def token(self, token: Token, text: str) -> None:
        self.tokens([token])
        self._out.print("\nIt is shown only once:")
        self._out.print(text, highlight=False, markup=False, soft_wrap=True)
        if token.is_webhook:
            self._out.print(f"\nRequests go to /v1/webhooks/{token.public_id}", highlight=False)

    def tokens(self, tokens: Sequence[Token], unreadable: Sequence[str] = ()) -> None:
        columns = ("id", "name", "project", "account", "kind", "topics", "scopes", "limits")
        table = _table(*columns, "created", "expires", "state")
        now = datetime.now(UTC)
        for one in tokens:
            table.add_row(*map(escape, token_cells(one)), one.state(now))
        self._out.print(table)
        for public_id in unreadable:
            self._err.print(f"token {escape(public_id)}: its record can't be read; it is no token")

    def namesakes(self, name: str, public_ids: Sequence[str]) -> None:
        text = f"other tokens are named {name!r}, too: {', '.join(public_ids)}"
        self._err.print(escape(text), soft_wrap=True)

    def spools(self, spools: Sequence[TopicSpool]) -> None:
        table = _table("topic", "waiting", "bytes", "of", "oldest", "set aside", "lost")
        for one in spools:
            age = f"{one.oldest_seconds:.0f} s" if one.events else "-"
            figures = (
                one.events,
                one.bytes,
                one.budget_bytes,
                age,
                len(one.set_aside),
                one.missing,
            )
            table.add_row(escape(one.topic), *map(str, figures))
        self._out.print(table)
        for one in spools:
            for file in one.set_aside:
                reasons = ", ".join(f"{text} ({count})" for text, count in file.reasons.items())
                text = f"{one.topic}: {file.name}: {file.records} event(s) {reasons}".rstrip()
                self._out.print(escape(text), highlight=False, soft_wrap=True)

    def spool_replayed(self, changes: Sequence[SpoolChange], *, dry_run: bool) -> None:
        self._spool_changes("would be put back" if dry_run else "put back", changes)

    def spool_dropped(self, changes: Sequence[SpoolChange], *, dry_run: bool) -> None:
        self._spool_changes("would be dropped" if dry_run else "dropped", changes)

    def _spool_changes(self, verb: str, changes: Sequence[SpoolChange]) -> None:
        for one in changes:
            where = f"of {one.file}" if one.file else "that waited"
            text = f"{one.events} event(s) {where} {verb}."
            if one.failure:
                text = f"{one.file} stays: {one.failure}"
            self._out.print(escape(text), highlight=False, soft_wrap=True)
        if not changes:
            self._out.print("Nothing was set aside.")

    def measuring(self) -> OnRun:
        def on_run(done: int, runs: int, name: str) -> None:
            self._err.print(f"[dim]{done + 1}/{runs} {escape(name)}", soft_wrap=True)

        return on_run

    def sized(
        self, load: Load, size: Size, catch_up: CatchUp | None, measured: Measurement | None
    ) -> None:
        if measured is not None:
            self._measured(measured)
        table = _table("what", "how much", "unit")
        table.columns[1].justify = "right"
        for what, amount, unit in _size_rows(load, size, catch_up):
            table.add_row(what, amount, unit)
        self._out.print(table)
        for warning in size.warnings:
            self._out.print(f"[yellow]{escape(warning)}", soft_wrap=True)

    def loading(self) -> AbstractContextManager[OnBatch]:
        return loading(self._err)

    def loaded(self, source: str, figures: Figures, *, dry_run: bool) -> None:
        table = _table("lines", "how many", "which")
        table.columns[1].justify = "right"
        for what, count, which in _load_rows(figures):
            table.add_row(what, f"{count:,}", escape(which))
        self._out.print(table)
        for warning in _load_warnings(figures):
            self._out.print(f"[yellow]{escape(warning)}", soft_wrap=True)
        written = "Nothing was written (--dry-run)." if dry_run else "Each counter is loaded once."
        self._out.print(f"Source [bold]{escape(source)}[/]. {written}", highlight=False)

    def _measured(self, measured: Measurement) -> None:
        self._out.print(
            f"Measured with {measured.sample_events} events of {escape(measured.sample)}, "
            f"{float(measured.event_bytes):,.0f} bytes on average; "
            f"1 partition, replication {measured.replication}.\n",
            highlight=False,
            soft_wrap=True,
        )
        table = _table("one producer, one consumer", "events/s", "KiB/s")
        for column in table.columns[1:]:
            column.justify = "right"
        for sent in measured.produced:
            table.add_row(f"producer: {sent.sending}", *_rates(sent))
        for read in measured.consumed:
            table.add_row(f"consumer: {read.batch} records a batch", *_rates(read))
        self._out.print(table)
        self._out.print()

    def _changes(self, plan: Plan) -> None:
        if not plan.changes:
            self._out.print("[green]Topics: as declared.")
        for one in plan.changes:
            sign = _SIGNS[one.action]
            text = f"{sign} {one.action}[/] [bold]{escape(one.topic)}[/]: {escape(one.detail)}"
            self._out.print(text, highlight=False, soft_wrap=True)

    def _sinks(self, plan: Plan) -> None:
        for change in plan.sinks:
            sign = "[red]! refused" if change.is_refused else "[yellow]~ sink"
            name, detail = escape(f"{change.pipeline}, {change.sink}"), escape(change.detail)
            self._out.print(f"{sign}[/] [bold]{name}[/]: {detail}", highlight=False, soft_wrap=True)
            if change.way_out:
                self._out.print(f"  [dim]{escape(change.way_out)}", soft_wrap=True)

    def _routes(self, plan: Plan) -> None:
        for one in plan.routes:
            way = f"{', '.join(one.topics)} -> {one.sink}, {one.guarantee}"
            text = f"  [bold]{escape(one.pipeline)}[/] ({escape(way)}): {one.path}, {one.why}"
            self._out.print(text, highlight=False, soft_wrap=True)
        for worker in plan.workers:
            lanes = f"worker, {worker.lanes} lane(s) over {worker.partitions} partition(s)"
            name, topics = escape(worker.worker), escape(", ".join(worker.topics))
            text = f"  [bold]{name}[/] ({topics}): {lanes}; on failure {worker.on_failure}"
            self._out.print(text, highlight=False, soft_wrap=True)

    def _letter(self, stored: StoredLetter) -> None:
        letter = stored.letter
        facts = {
            "record": f"{stored.origin}, {time_text(letter.timestamp_ms)}",
            "reason": f"{letter.reason}: {letter.detail}",
            "pipeline": f"{stored.pipeline}, version {stored.version}",
            "written": f"{time_text(stored.written_ms)}, after {stored.replays} replay(s)",
            "key": content_text(letter.key),
            "value": content_text(letter.value),
        }
        facts |= {f"header {name}": content_text(value) for name, value in letter.headers}
        for name, fact in facts.items():
            line = f"[bold]{safe(name)}[/]: {safe(fact)}"
            self._out.print(line, highlight=False, soft_wrap=True)


def _size_rows(load: Load, size: Size, catch_up: CatchUp | None) -> Iterator[tuple[str, str, str]]:
    days = load.retention.total_seconds() / 86_400
    yield "sent by producers", f"{float(size.bytes_per_second / KIB):,.0f}", "KiB/s"
    yield f"kept for {days:g} days, one copy", *_binary(size.retained_bytes)
    copies = f"{load.replication} copies"
    yield f"kept, {copies}", *_binary(size.replicated_bytes)
    yield f"on each of {load.brokers} brokers", *_binary(size.bytes_per_broker)
    if size.partitions is not None:
        yield f"for {float(load.events_per_second):,g} events/s", str(size.partitions), "partitions"
    if size.planned_partitions != size.partitions:
        planned = f"for the planned {float(load.highest_rate):,g} events/s"
        yield planned, str(size.planned_partitions), "partitions"
    if catch_up is not None:
        yield from _catch_up_rows(catch_up)


def _binary(size: Fraction) -> tuple[str, str]:
    """In the largest unit of which there is at least one."""
    for unit, name in ((TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB")):
        if size >= unit:
            return f"{float(size / unit):,.2f}", name
    return f"{float(size / KIB):,.2f}", "KiB"


def _catch_up_rows(catch_up: CatchUp) -> Iterator[tuple[str, str, str]]:
    if catch_up.rate_needed is None or catch_up.needs is not None:
        needs = "never" if catch_up.needs is None else _hours(catch_up.needs)
        yield f"to catch up with {_hours(catch_up.lag)}", needs, "h:min"
    if catch_up.rate_needed is not None and catch_up.within is not None:
        what = f"to catch up with {_hours(catch_up.lag)} within {_hours(catch_up.within)}"
        yield what, f"{float(catch_up.rate_needed):,.0f}", "events/s"


def _load_rows(figures: Figures) -> Iterator[tuple[str, int, str]]:
    yield "read", figures.lines, f"{figures.files} of {figures.of_files} file(s)"
    for table, count in figures.loaded.most_common():
        yield "loaded", count, table
    for reason, count in figures.dead.most_common():
        yield "dead letters", count, reason
    if figures.skipped:
        yield "skipped", figures.skipped, "done before"
    if figures.left:
        yield "left", figures.left, "half written, at the end of the newest file"


def _load_warnings(figures: Figures) -> Iterator[str]:
    holes = figures.done.holes
    if holes:
        shown = ", ".join(f"{start} to {end - 1}" for start, end in holes[:MOST_HOLES_SHOWN])
        missing = sum(end - start for start, end in holes)
        more = f" and {len(holes) - MOST_HOLES_SHOWN} more" if len(holes) > MOST_HOLES_SHOWN else ""
        yield f"{missing:,} counter(s) were never seen: {shown}{more}"
    if figures.backwards:
        yield f"{figures.backwards:,} line(s) came after a higher counter: try the other --order"


def _rates(run: Produced | Consumed) -> tuple[str, str]:
    return f"{run.events_per_second:,}", f"{run.bytes_per_second / KIB:,.0f}"


def _hours(duration: timedelta) -> str:
    minutes = round(duration.total_seconds() / 60)
    return f"{minutes // 60}:{minutes % 60:02}"


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in columns:
        table.add_column(name, overflow="fold")
    return table


@contextmanager
def _download(console: Console) -> Iterator[Progress]:
    columns = (TextColumn("Fetching {task.description}"), BarColumn(), DownloadColumn())
    with ProgressBar(*columns, console=console, transient=True) as bar:
        task = bar.add_task("jars", visible=False)

        def on_progress(done: int, total: int, name: str) -> None:
            bar.update(task, completed=done, total=total, description=name, visible=True)

        yield on_progress
