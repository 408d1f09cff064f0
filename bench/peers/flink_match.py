"""Flink's broadcast state pattern: rules of a topic are broadcast to tasks that match events.

The program (``java/flink/Match.java``) is written as an engineer would for speed: each event is
parsed once, by Jackson's streaming parser. It is tested with all rules, as Flink's documentation
shows the pattern; or an index beside the broadcast state selects rules by the value of the field
that they have an equality on. A match is a record, without a window.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import replace

from bench.driver import OnCommit, WriteOnce
from bench.peers import flink_sql
from bench.peers.java_program import Program, write_properties
from bench.peers.match_topics import WARM_UP_SHARE, count_of_rules, make_matches_topic
from bench.peers.programs import Conversation, started
from bench.peers.progress import follow_group
from bench.setup import Setup
from headrace.runtime.java.installation import Java

SETTINGS = flink_sql.SETTINGS | {"execution.checkpointing.mode": "AT_LEAST_ONCE"}
CONSUMER = {
    "consumer.max.poll.records": "5000",
    "consumer.max.partition.fetch.bytes": "4194304",
}
OPTIONS = ("-XX:+UseParallelGC",)


def prepare(java: Java) -> Program:
    """Fetches Flink, compiles the program. Raises as :func:`flink_sql.prepare`."""
    program = flink_sql.prepare(java)
    return replace(program, main="Match", options=(*program.options, *OPTIONS))


def open_flink_match(setup: Setup, *, program: Program, rules: str, is_indexed: bool) -> WriteOnce:
    """Starts the JVM; the function returned runs one job over the topic.

    Args:
        setup: of the run.
        program: the compiled job.
        rules: topic of the rules.
        is_indexed: whether an index selects the rules that an event is tested with.
    """
    home = setup.logs / f"flink-match-{is_indexed}"
    settings = flink_sql.all_settings(setup, home) | SETTINGS
    arguments = [f"{name}={value}" for name, value in settings.items()]
    command = program.command(home, setup.heap_mb, str(setup.threads), *arguments)
    jvm = Conversation(started(command, subprocess.PIPE))

    def match(messages: int, run: str, on_commit: OnCommit) -> None:
        matches = make_matches_topic(setup, run)
        told = job(setup, run, rules, matches, is_indexed=is_indexed)
        file = write_properties(home / "job.properties", told)
        jvm.ask(str(file), "started")
        follow_group(replace(setup, messages=messages), run, on_commit, jvm.check)
        jvm.ask("stop", "stopped")

    match(setup.messages // WARM_UP_SHARE, f"{home.name}-{setup.logs.name}-warm-up", lambda _: None)
    return lambda out, on_commit: match(setup.messages, out.name, on_commit)


def job(setup: Setup, run: str, rules: str, matches: str, *, is_indexed: bool) -> Mapping[str, str]:
    """The properties of a job, whose group has the name of the run."""
    return CONSUMER | {
        "bootstrap": setup.bootstrap,
        "group": run,
        "events": setup.topic,
        "rules": rules,
        "rules.index": str(is_indexed).lower(),
        "rules.count": str(count_of_rules(setup, rules)),
        "matches": matches,
    }
