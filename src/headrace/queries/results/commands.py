"""query run, emit, results, explain, instances: answers standing queries, and shows the answers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from headrace.cli import parameters
from headrace.cli.closed_pipe import ReaderGoneError, interrupt_when_closed
from headrace.cli.session import INTERRUPTED, OK, REFUSED, Session, command, log_to_file
from headrace.cli.signals import interrupt_on_sigterm
from headrace.runtime.logs import Subject

if TYPE_CHECKING:
    from headrace.queries.results.results import ResultStart
    from headrace.queries.results.views import InstanceSlots, ShownExplanation

_RESULTS = """headrace query results clicks-a-minute
headrace query results clicks-a-minute --follow
headrace query results clicks-a-minute --follow --from latest --json"""
_STDOUT = 1


@command("headrace query run --metrics-port 9400", extra="queries")
@parameters.queries_name
@parameters.metrics_port
@parameters.metrics_host
@parameters.log_format
def run(
    session: Session,
    *,
    queries: str | None,
    metrics_port: int | None,
    metrics_host: str,
    log_format: str | None,
) -> None:
    """Run an instance that answers standing queries.

    It adds up what pipelines with MatchQueries have matched, and writes results, until Ctrl-C or
    SIGTERM. Progress is shown. Start as many instances as you need, on any machines: each takes
    some of the partitions, and the spares among them wait to take the place of one that is lost.
    """
    from headrace.cli.service_run import run_service
    from headrace.queries.registry.registrations import declared_queries
    from headrace.queries.run import query_run
    from headrace.queries.windows.instance.views import answering
    from headrace.service.run import RunOptions

    declared = declared_queries(session.project, queries)
    log_to_file(session, log_format, Subject("queries", declared.name))
    options = RunOptions(metrics_host, metrics_port)
    instance = query_run(session.project, declared, options)
    run_service(session, instance, answering)


@command("headrace query emit --topic clicks", extra="queries")
@click.option("--topic", help="Whose events; not needed if one topic is matched.")
@parameters.queries_name
@parameters.metrics_port
@parameters.metrics_host
@parameters.log_format
def emit(
    session: Session,
    *,
    topic: str | None,
    queries: str | None,
    metrics_port: int | None,
    metrics_host: str,
    log_format: str | None,
) -> None:
    """Send events within milliseconds to queries that match them.

    It sends each event that a query with MATCHED EVENTS EMIT matches to the topic
    NAME.matched-events, until Ctrl-C or SIGTERM. Progress is shown. One process sends the events
    of a topic; Spark has a core for each of its partitions. A new query takes part within seconds.
    """
    from headrace.cli.service_run import run_service
    from headrace.queries.emit.run import matched_events_run
    from headrace.queries.emit.views import emitting
    from headrace.queries.registry.registrations import declared_queries
    from headrace.service.run import RunOptions
    from headrace.settings import environment
    from headrace.spark.kafka_session import jars_notice

    declared = declared_queries(session.project, queries)
    log_to_file(session, log_format, Subject("queries", declared.name))
    if notice := jars_notice(environment()):
        session.output.warn(notice)
    options = RunOptions(metrics_host, metrics_port)
    instance = matched_events_run(session.project, declared, topic, options)
    run_service(session, instance, emitting)


@command(_RESULTS, extra="queries")
@click.argument("query_id", metavar="ID")
@click.option("--follow", is_flag=True, help="Show results as they come, until Ctrl-C.")
@click.option(
    "--from",
    "start",
    type=click.Choice(["earliest", "latest"]),
    default="earliest",
    show_default=True,
    help="With --follow: begin with the results that are there, or with those that come from now.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    help="Show the newest so many results, by default 100,000; with --follow, end after so many.",
)
@parameters.queries_name
def results(
    session: Session,
    query_id: str,
    *,
    follow: bool,
    start: ResultStart,
    limit: int | None,
    queries: str | None,
) -> None:
    """Show the results of a query.

    Those that are there now are shown, the newest window last; of each group of a window, the
    newest result. With --follow on a terminal, a table of the newest windows is kept up to date;
    elsewhere each result is a line when it comes.

    The exit code is 2 if the id is unknown and there are no results of it. Results of a query that
    has expired or was cancelled are shown until Kafka deletes them; standard error says so.
    """
    from headrace.queries.results.results import ResultOptions, find_results
    from headrace.queries.results.views import followed_results, listed_results

    if start == "latest" and not follow:
        raise click.UsageError("--from latest needs --follow: no result is there that comes later")
    log_to_file(session)
    options = ResultOptions(follow, start, limit)
    shown = followed_results if follow else listed_results
    try:
        with interrupt_on_sigterm(), _interrupted_when_unread():
            query_results = find_results(session.project, query_id, options, queries=queries)
            if query_results.ended:
                session.output.warn(query_results.ended)
            with session.output.live(shown) as show:
                for result in query_results.results:
                    show(result)
    except ReaderGoneError:
        session.exit_code = OK
    except KeyboardInterrupt:
        session.exit_code = OK if follow else INTERRUPTED


@command("headrace query explain clicks-a-minute --events 100000", extra="queries")
@click.argument("query_id", metavar="ID")
@click.option(
    "--events",
    type=click.IntRange(1, 1_000_000),
    default=10_000,
    show_default=True,
    help="How many of the newest events of its topic are looked at.",
)
@parameters.queries_name
def explain(
    session: Session, query_id: str, *, events: int, queries: str | None
) -> ShownExplanation:
    """Show why a query gives what it gives.

    Shows whether the query lives; how many of the newest events meet each part of its WHERE; what
    it is looked up by, and what that costs; how far the pipelines are that match it; and which
    instances add it up. Reads alone, and says what is not known. The exit code is 2 if the id is
    unknown.
    """
    from headrace.queries.results.explanation import explain_query
    from headrace.queries.results.views import ShownExplanation

    explanation = explain_query(session.project, query_id, max_events=events, queries=queries)
    return ShownExplanation(explanation)


@command("headrace query instances --json", extra="queries")
@parameters.queries_name
def instances(session: Session, *, queries: str | None) -> InstanceSlots:
    """Show which instance has which partitions.

    The exit code is 3 if partitions are uncovered: no instance has them. Spares have no partitions,
    and are not shown.
    """
    from headrace.queries.results.views import InstanceSlots
    from headrace.queries.windows.instance.owners import query_instances

    slots = InstanceSlots(tuple(query_instances(session.project, queries=queries)))
    if slots.uncovered:
        session.exit_code = REFUSED
    return slots


@contextmanager
def _interrupted_when_unread() -> Iterator[None]:
    """Ends the command once nothing reads its output, such as ``head`` that has its lines."""
    # A copy: while results are shown as JSON, the descriptor itself is that of standard error.
    copy = os.dup(_STDOUT)
    try:
        with interrupt_when_closed(copy):
            yield
    finally:
        os.close(copy)
