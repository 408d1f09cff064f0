"""Quix Streams' own interval join, a process a partition, into a topic.

Its ``left`` join writes a click at once, with null if no impression has been read for it, and once
more when one comes; so what is unmatched is not known from its rows alone.
"""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

from bench.cluster import Broker, values_of
from bench.driver import OnCommit, WriteOnce
from bench.flow.events import Traffic
from bench.flow.times import Times
from bench.peers.progress import follow_groups
from bench.peers.record.python_programs import running_programs
from bench.setup import Setup
from headrace import Topic
from headrace.kafka.admin.topics import apply_changes, plan_topics
from headrace.kafka.client.clients import client_config
from headrace.settings.model import KafkaSettings

PROGRAM = Path(__file__).with_name("quix_program.py")
SETTINGS = {"join": "join_interval", "how": "left"}
STATE = "state"
_MS = timedelta(milliseconds=1)


def open_join(setup: Setup, *, python: Path, traffic: Traffic, times: Times) -> WriteOnce:
    """The function returned runs one application over both topics."""

    def write_once(out: Path, on_commit: OnCommit) -> None:
        # Rows have the time of their events, so by age the broker would delete them at once.
        topic = Topic(
            out.name,
            event=Joined,
            partitions=setup.partitions,
            config={"retention.ms": "-1"},
        )
        config = client_config(KafkaSettings(), setup.bootstrap)
        apply_changes(config, plan_topics([topic], {}))
        arguments = json.dumps(_arguments(setup, out, traffic, times))
        with running_programs([str(python), str(PROGRAM), arguments], setup.partitions) as check:
            topics = [traffic.clicks_topic.name, traffic.impressions_topic.name]
            follow_groups(setup, topics, out.name, on_commit, check)

    return write_once


class Joined:
    """A row of the join, as far as it is read."""

    event_id: str


def _arguments(setup: Setup, out: Path, traffic: Traffic, times: Times) -> dict[str, object]:
    return {
        "names": {
            "bootstrap": setup.bootstrap,
            "group": out.name,
            "state": str(out / STATE),
            "clicks": traffic.clicks_topic.name,
            "impressions": traffic.impressions_topic.name,
            "out": out.name,
        },
        "times": {
            "within_ms": times.within // _MS,
            "wait_ms": times.wait // _MS,
            "commit_seconds": setup.commit_every_ms / 1000,
        },
    }


def joined_rows(broker: Broker, topic: str, partitions: int) -> dict[str, int]:
    """The rows with an impression, and those without one."""
    rows = [json.loads(value)["impression"] for value in values_of(broker, topic, partitions)]
    matched = sum(row is not None for row in rows)
    return {"matched_rows": matched, "unmatched_rows": len(rows) - matched}


def state_folders(out: Path) -> list[Path]:
    """The stores of its processes; the changelog topics hold as much again."""
    return [out / STATE]
