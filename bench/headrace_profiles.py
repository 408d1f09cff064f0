"""Events of users in a topic, and headrace's profiles of them, as a site would load them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path

from bench.driver import WriteOnce
from bench.events import Impression, events
from bench.headrace_writer import batch_limits, open_pipelines
from bench.setup import Setup
from headrace import Latest, Pipeline, Profiles, Topic
from headrace.settings import SecretUrl

USERS = 100_000
SKEW = 3
"""A user's number is ``USERS`` times a random number to this power: 2% of events are of one."""
STORE = "users"
FIELD = "user_group"
LIST = "views"
LENGTH = 10
COLUMNS = ("item_id", "campaign")
# The events are of 2019, and must live still.
TTL = timedelta(days=36_500)


class View(Impression):
    """An ad that a user was shown: one field more than the other benchmarks' events."""

    user_id: str


def views_topic(name: str, partitions: int) -> Topic:
    """The topic of the events, as a project would declare it."""
    return Topic(name, event=View, event_time="event_time", partitions=partitions)


def views(count: int) -> Iterator[tuple[int, bytes]]:
    """``count`` events as JSON, each with the number of its user; the same ones in every run."""
    draw = random.Random(count)
    for value in events(count):
        user = int(USERS * draw.random() ** SKEW)
        yield user, b'{"user_id":"%s",%s' % (user_id(user).encode(), value[1:])


def user_id(user: int) -> str:
    """Of the user with a number."""
    return f"u{user}"


def profiles_sink() -> Profiles:
    """What a run writes: the newest group of a user, and the last ads shown."""
    return Profiles(
        STORE,
        key="user_id",
        ttl=TTL,
        fields=(FIELD,),
        lists={LIST: Latest(LENGTH, columns=COLUMNS)},
        event_id="event_id",
    )


def open_profiles(setup: Setup, *, url: SecretUrl) -> WriteOnce:
    """Starts Spark; the function returned loads the whole topic into the Redis of ``url``."""
    pipeline = partial(_pipeline, setup)
    return open_pipelines(setup, "profiles", pipeline, sinks={"profiles": {"url": url}})


def _pipeline(setup: Setup, out: Path) -> Pipeline:
    return Pipeline(
        out.name,
        source=views_topic(setup.topic, setup.partitions),
        sink=profiles_sink(),
        limits=batch_limits(setup),
    )
