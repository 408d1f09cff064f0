"""headrace's count: a standing query, matched by a pipeline and added up by an instance.

The pipeline runs in a warm Spark session. The instance is a process of ``headrace query run``, of
a project in the folder of the run.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from bench.cluster import send
from bench.driver import OnCommit, WriteOnce
from bench.headrace_site import KAFKA, ROOT
from bench.headrace_writer import batch_limits, open_pipelines
from bench.peers.programs import running
from bench.query_traffic import ad_impressions_topic
from bench.setup import Setup
from bench.windowed_count.counts import follow_counts
from bench.windowed_count.traffic import ADVERTISERS, ALLOWED_LATENESS, WINDOW
from headrace import BatchLimits, MatchQueries, Pipeline, StandingQueries
from headrace.kafka.client.clients import ClientConfig
from headrace.queries.language import parse_query, print_query
from headrace.queries.records.result import ResultKind, decode_result
from headrace.queries.registry.record import RegisteredQuery, encode_query
from headrace.queries.topics import ensure_query_topics

QUERY = (
    'SELECT count(*) AS events FROM "{topic}" '
    f"FACET advertiser LIMIT {ADVERTISERS} WINDOW {WINDOW.seconds} seconds "
    f"ALLOWED LATENESS {ALLOWED_LATENESS.seconds} seconds"
)
_FLOW = '''\
"""The count of a run."""

from bench.windowed_count.headrace_count import matching

pipeline = matching("{run}", "{topic}", {partitions})
events = pipeline.source
queries = pipeline.sink.queries
'''


def open_counts(setup: Setup, *, results: int) -> WriteOnce:
    """Starts Spark; the function returned counts the whole topic by the query of its run."""
    match_once = open_pipelines(setup, "match", partial(_pipeline, setup))

    def count_once(out: Path, on_commit: OnCommit) -> None:
        _write_project(setup, out)
        command = (sys.executable, "-m", "headrace.cli", "query", "run", "--project", str(out))
        topic = standing_queries(out.name, setup.partitions).results_topic
        with running([command], ROOT) as check_instance, ThreadPoolExecutor(1) as pool:
            matched = pool.submit(match_once, out, lambda _: None)

            def check() -> None:
                check_instance()
                if matched.done():
                    matched.result()

            follow_counts(setup, topic, results, on_commit, check)
            matched.result()

    return count_once


def standing_queries(run: str, partitions: int) -> StandingQueries:
    """Those of a run."""
    return StandingQueries(run, partitions=partitions, max_ttl=None)


def matching(run: str, topic: str, partitions: int, limits: BatchLimits | None = None) -> Pipeline:
    """The pipeline of a run, as a project would declare it."""
    return Pipeline(
        run,
        ad_impressions_topic(topic, partitions),
        MatchQueries(standing_queries(run, partitions)),
        limits=limits or BatchLimits(),
    )


def register(config: ClientConfig, queries: StandingQueries, topic: str) -> None:
    """Registers the query."""
    ensure_query_topics(config, queries)
    text = print_query(parse_query(QUERY.format(topic=topic)))
    now = datetime.now(UTC)
    query = RegisteredQuery("counts", text, topic, 1, now, now, None)
    send(config, queries.queries_topic, [(0, *encode_query(query))], lambda _: None)


def decode_count(value: bytes) -> tuple[tuple[str, int], int]:
    """What a result of the query says."""
    result = decode_result(value)
    if result.kind is not ResultKind.FINAL or result.is_other:
        raise ValueError(f"{value!r} is no final result of an advertiser")
    begin = datetime.fromisoformat(result.begin)
    key = result.facets["advertiser"], int(begin.timestamp() * 1000)
    return key, result.values["events"]


def _pipeline(setup: Setup, out: Path) -> Pipeline:
    return matching(out.name, setup.topic, setup.partitions, batch_limits(setup))


def _write_project(setup: Setup, out: Path) -> None:
    flow = _FLOW.format(run=out.name, topic=setup.topic, partitions=setup.partitions)
    (out / "headrace.toml").write_text(KAFKA.format(setup.bootstrap))
    (out / "flow.py").write_text(flow)
