"""A project, opened in a program: send events to its topics, read its tables and profiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.control.event_producer import EventProducer
from headrace.control.profiles import read_profile
from headrace.control.project import LoadedProject, load_project
from headrace.control.tables import read_project_table
from headrace.model import Topic
from headrace.settings import environment, find_project, load_settings
from headrace.sinks.profiles.store import Profile

if TYPE_CHECKING:
    import pyarrow as pa


class Project:
    """A project's topics, tables and profiles, for programs. :meth:`open` makes one.

    It is a view of what is declared: it starts no server, creates no topic and keeps no
    connection. Use it on any thread, and each of its producers on one.
    """

    def __init__(self, loaded: LoadedProject) -> None:
        self._loaded = loaded

    @classmethod
    def open(cls, folder: str | Path | None = None) -> Project:
        """Opens the project in a folder; by default the nearest one upwards, as commands do.

        Its modules are imported, and ``folder`` is put first on ``sys.path``.

        Raises:
            ProjectError: if there is no project, or it is not valid, with every problem.
        """
        # Without a project, the error names the folder where the search began.
        root = Path(folder) if folder is not None else find_project(Path.cwd()) or Path.cwd()
        return cls(load_project(load_settings(root, environment())))

    @property
    def topics(self) -> Mapping[str, Topic]:
        """Returns the declared topics by name."""
        return self._loaded.topics

    def producer(self, *, account: str = "") -> EventProducer:
        """Returns a producer that checks, keys and places events as ``headrace ingest`` does.

        Use it in a ``with`` block, whose end waits until Kafka has all events::

            with Project.open().producer() as producer:
                producer.send("orders", {"order_id": "a-1", "price": 3.5})

        Args:
            account: whose events these are: their key where the topic declares none.

        Raises:
            BrokerUnreachableError: if the embedded broker is down.
        """
        return EventProducer(self._loaded, account)

    def read(self, table: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Returns the rows of a table of the lake as they are now, in no order.

        They are the rows of one version: whole batches, each event of them once.

        Args:
            table: its name, as a pipeline declares it.
            columns: names of those to read; all where it is ``None``.

        Raises:
            ExtraMissingError: if pyarrow is missing, which ``headrace[spark]`` installs.
            NotDeclaredError: if no pipeline writes such a table.
            SinkError: if the table is not there yet, or the lake can't be read.
            ServerStartError: if the lake is on the embedded HDFS, which is down.
        """
        return read_project_table(self._loaded, table, columns)

    def profile(self, store: str, user: str | int) -> Profile | None:
        """Returns what a store of profiles holds of a user now; None: no live row, no marker.

        It opens a connection each time: a service that reads many profiles asks the database
        itself, by the keys and columns that :mod:`headrace.sinks.profiles` lists.

        Args:
            store: its name, as a pipeline declares it.
            user: value of the key column.

        Raises:
            ExtraMissingError: if the client is missing, which ``headrace[redis]`` or
                ``headrace[cassandra]`` installs.
            NotDeclaredError: if no pipeline writes such a store.
            SinkUnavailableError: if the store does not answer within 30 seconds.
            SinkError: if the store refuses.
        """
        return read_profile(self._loaded, store, str(user))
