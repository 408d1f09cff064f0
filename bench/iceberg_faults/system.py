"""A system under faults: what is planted needs of it."""

from __future__ import annotations

import abc
import random
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from bench.cluster import Broker
from bench.driver import SystemFailedError
from bench.iceberg_faults.catalog import Catalog
from bench.iceberg_faults.processes import Member
from headrace.kafka.client.clients import client_config
from headrace.kafka.client.offsets import group_offsets
from headrace.model import TopicPartition
from headrace.runtime.java.installation import Java
from headrace.settings.model import KafkaSettings

PARTITIONS = 4


@dataclass(frozen=True)
class Place:
    """Where a system works in one run.

    Attributes:
        name: of the run, of its table and topic.
        folder: for files of the system.
        broker: the Kafka cluster.
        catalog: of the table.
        java: for processes of the JVM.
        heap_mb: of each JVM.
        port: of the catalog's database; of a proxy before it, where there is one.
    """

    name: str
    folder: Path
    broker: Broker
    catalog: Catalog
    java: Java
    heap_mb: int
    port: int

    @property
    def database(self) -> str:
        """The URL of the catalog's database, as the system reaches it."""
        return self.catalog.url.replace(f":{self.catalog.port}/", f":{self.port}/")


@dataclass
class System(abc.ABC):
    """One system in one run: it copies the topic into the table.

    Attributes:
        place: where.
        notes: what happened, and how often.
        settings: what is not its default.
        states: what it keeps outside of the table and can lose, by the name of the fault.
    """

    settings: ClassVar[Mapping[str, str]]
    states: ClassVar[Mapping[str, str]]

    place: Place
    notes: dict[str, int] = field(default_factory=dict)

    @property
    @abc.abstractmethod
    def members(self) -> Sequence[Member]:
        """Its processes, also those that do not run."""

    @abc.abstractmethod
    def start(self, members: int) -> None:
        """Starts it, with so many processes that share its work."""

    @abc.abstractmethod
    def join(self) -> None:
        """Starts its second process."""

    @abc.abstractmethod
    def has_joined(self) -> bool:
        """Returns whether its second process is at work, or has been refused."""

    @abc.abstractmethod
    def take_over(self, frozen: Member) -> None:
        """Does what an operator does when a process is thought dead."""

    def leave(self) -> None:
        """Ends its second process, in order; no-op where it has one only."""
        self.members[1].stop()

    @abc.abstractmethod
    def lose(self, state: str) -> None:
        """Deletes one of :attr:`states`, while nothing of it runs, and recreates it."""

    @abc.abstractmethod
    def tend(self) -> None:
        """Does what a supervisor does: starts again what has ended or failed."""

    @property
    @abc.abstractmethod
    def group(self) -> str:
        """The consumer group that has the offsets of what was read."""

    def has_read_all(self, count: int) -> bool:
        """Returns whether its offsets are committed up to so many events of the topic."""
        client = client_config(KafkaSettings(), self.place.broker.bootstrap)
        partitions = [TopicPartition(self.place.name, number) for number in range(PARTITIONS)]
        return sum(group_offsets(client, self.group, partitions).values()) >= count

    def stop(self) -> None:
        """Ends all its processes, in order; also where one of them can't be waited for."""
        with ExitStack() as stack:
            for member in self.members:
                stack.callback(member.stop)

    def note(self, what: str) -> None:
        """Counts what happened."""
        self.notes[what] = self.notes.get(what, 0) + 1

    def running(self) -> list[Member]:
        """Returns the processes that run."""
        return [member for member in self.members if member.is_started and not member.has_ended]

    def owner(self, port: int) -> Member:
        """Returns the process that has a connection to the catalog from a port.

        Raises:
            SystemFailedError: if there is none.
        """
        server = self.place.catalog.port
        for member in self.running():
            if member.has_connection(port, server):
                return member
        raise SystemFailedError(f"no process of {self.place.name} has port {port}")

    def any_running(self, chosen: random.Random) -> Member:
        """Returns one that runs, by chance.

        Raises:
            SystemFailedError: if none does.
        """
        if not (running := self.running()):
            raise SystemFailedError(f"nothing of {self.place.name} runs")
        return chosen.choice(running)

    def restart_ended(self) -> None:
        """Starts members that have ended."""
        for member in self.members:
            if member.has_ended:
                self.note("restarts")
                member.start()
