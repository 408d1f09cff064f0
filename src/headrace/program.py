"""A project, opened in a program: send events, read tables and profiles, ask standing queries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from headrace.ingest.producing.event_producer import EventProducer, Partitioner
from headrace.model import Topic
from headrace.pipelines.profiles.profiles import read_profile
from headrace.pipelines.sinks import read_project_table
from headrace.project.check import load_project
from headrace.project.loaded import LoadedProject
from headrace.runtime.extras import require_extra
from headrace.settings import environment, find_project, load_settings
from headrace.sinks.profiles.store import Profile

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.queries.emit.matched_event import MatchedEvent
    from headrace.queries.records.result import QueryResult
    from headrace.queries.registry.record import RegisteredQuery
    from headrace.queries.registry.registrations import QueryEntry
    from headrace.queries.results.explanation import QueryExplanation


class Project:
    """A project's topics, tables, profiles and queries, for programs. :meth:`open` makes one.

    It is a view of what is declared: it starts no server, creates no topic and keeps no
    connection. Use it on any thread, and each of its producers on one.
    """

    def __init__(self, loaded: LoadedProject) -> None:
        self._loaded = loaded

    @classmethod
    def open(cls, folder: str | Path | None = None) -> Project:
        """Opens the project in a folder; by default the nearest one upwards, as commands do.

        Its modules are imported, and ``folder`` is put first on ``sys.path``. The local time stays
        that of the program; commands make it UTC.

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

    def producer(
        self, *, account: str = "", partitioner: Partitioner | None = None
    ) -> EventProducer:
        """Returns a producer that checks, keys and places events as ``headrace ingest`` does.

        Use it in a ``with`` block, whose end waits until Kafka has all events::

            with Project.open().producer() as producer:
                producer.send("orders", {"order_id": "a-1", "price": 3.5})

        Args:
            account: whose events these are: their key where the topic declares none.
            partitioner: a function of a record's key (``None``: it has none) and the number of
                partitions, which returns the partition, from 0. By default each topic's own
                ``partitioning`` chooses.

        Raises:
            BrokerUnreachableError: if the embedded broker is down.
        """
        return EventProducer(self._loaded, account, partitioner)

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

    def register_query(
        self,
        text: str,
        *,
        queries: str | None = None,
        query_id: str | None = None,
        ttl: timedelta | None = None,
    ) -> RegisteredQuery:
        """Registers a standing query, and returns it once Kafka has it.

        A live query with the same id and text is renewed: its time to live starts over. A service
        that calls this from time to time keeps its query alive.

        Args:
            text: of the query, in the language of standing queries.
            queries: name of the StandingQueries; None: the only ones that are declared.
            query_id: up to 100 letters, digits, ``-`` and ``_``; None: a random one.
            ttl: how long it lives if it is not renewed; None: as long as possible, ``max_ttl``.

        Raises:
            ExtraMissingError: if a package is missing, which ``headrace[queries]`` installs.
            QueryTextError: if the text is no query, or does not fit the events of its topic.
            QueryInvalidError: if the id or the time to live is not possible.
            QueryIdTakenError: if a live query with another text has the id.
            QueryUnmatchedError: if no pipeline matches the events of the topic.
            NotDeclaredError: if there are no such standing queries.
            BrokerUnreachableError: if the brokers do not answer.
            TopicChangeError: if the topic of queries has settings of another ``max_ttl``.
        """
        require_extra("queries")
        from headrace.queries.registry.registrations import QueryRegistry

        return QueryRegistry(self._loaded, queries).register(text, query_id, ttl)

    def update_query(
        self,
        query_id: str,
        text: str | None = None,
        *,
        queries: str | None = None,
        ttl: timedelta | None = None,
    ) -> RegisteredQuery:
        """Renews a live query, with another text if there is one: then its revision is one more.

        Args:
            query_id: of a live query.
            text: what it is from now on; None: its text stays.
            queries: name of the StandingQueries; None: the only ones that are declared.
            ttl: how long it lives from now on; None: as long as possible, ``max_ttl``.

        Raises:
            ExtraMissingError: if a package is missing, which ``headrace[queries]`` installs.
            QueryMissingError: if no live query has the id.
            QueryTextError, QueryInvalidError, QueryUnmatchedError, NotDeclaredError,
                BrokerUnreachableError, TopicChangeError: as :meth:`register_query` does.
        """
        require_extra("queries")
        from headrace.queries.registry.registrations import QueryRegistry

        return QueryRegistry(self._loaded, queries).update(query_id, text, ttl)

    def registered_queries(self, *, queries: str | None = None) -> list[QueryEntry]:
        """Returns all live, expired and faulty queries, the earliest registration first.

        Args:
            queries: name of the StandingQueries; None: the only ones that are declared.

        Raises:
            ExtraMissingError: if a package is missing, which ``headrace[queries]`` installs.
            NotDeclaredError: if there are no such standing queries.
            BrokerUnreachableError: if the brokers do not answer.
        """
        require_extra("queries")
        from headrace.queries.registry.registrations import QueryRegistry

        return QueryRegistry(self._loaded, queries).entries()

    def explain_query(
        self, query_id: str, *, max_events: int = 10_000, queries: str | None = None
    ) -> QueryExplanation:
        """Returns why a query gives what it gives: its entry, events, pipelines and instances.

        Args:
            query_id: of a registered query.
            max_events: how many of the newest events of its topic are looked at.
            queries: name of the StandingQueries; None: the only ones that are declared.

        Raises:
            ExtraMissingError: if a package is missing, which ``headrace[queries]`` installs.
            QueryMissingError: if the id is unknown.
            NotDeclaredError: if there are no such standing queries.
            BrokerUnreachableError: if the brokers do not answer.
            RecordsUnreadableError: if records are damaged.
        """
        require_extra("queries")
        from headrace.queries.results.explanation import explain_query

        return explain_query(self._loaded, query_id, max_events=max_events, queries=queries)

    def cancel_query(self, *query_ids: str, queries: str | None = None) -> None:
        """Cancels standing queries for good, or none of them if an id is unknown.

        Args:
            query_ids: of live, expired or faulty queries.
            queries: name of the StandingQueries; None: the only ones that are declared.

        Raises:
            ExtraMissingError: if a package is missing, which ``headrace[queries]`` installs.
            QueryMissingError: if an id is unknown.
            NotDeclaredError: if there are no such standing queries.
            BrokerUnreachableError: if the brokers do not answer.
        """
        require_extra("queries")
        from headrace.queries.registry.registrations import QueryRegistry

        QueryRegistry(self._loaded, queries).cancel(*query_ids)

    def query_results(
        self, query_id: str, *, follow: bool = False, queries: str | None = None
    ) -> Iterator[QueryResult]:
        """Returns the results of a standing query.

        Without ``follow``, it ends with what is there: the newest result of each group, the newest
        window last, 100,000 results at most. With it, results come one after the other for ever,
        each once: one with a greater ``emission`` replaces those of its window before it. Close the
        iterator to end it.

        Args:
            query_id: of a registered query, or of one that was, as long as its results are there.
            follow: whether to wait for more results.
            queries: name of the StandingQueries; None: the only ones that are declared.

        Raises:
            ExtraMissingError: if a package is missing, which ``headrace[queries]`` installs.
            QueryMissingError: if the id is unknown, and there are no results of it.
            NotDeclaredError: if there are no such standing queries.
            TopicMissingError: if there is no topic of results to follow.
            BrokerUnreachableError: if the brokers do not answer.
        """
        require_extra("queries")
        from headrace.queries.results.results import ResultOptions, find_results

        options = ResultOptions(follow=follow)
        return find_results(self._loaded, query_id, options, queries=queries).results

    def matched_events(
        self,
        query_id: str | None = None,
        *,
        start: Literal["earliest", "latest"] | datetime = "earliest",
        follow: bool = False,
        queries: str | None = None,
    ) -> Iterator[MatchedEvent]:
        """Returns the events that match queries with ``MATCHED EVENTS EMIT``.

        Without ``follow``, it ends with what is there. With it, events come as ``query emit`` sends
        them, for ever; close the iterator to end it. Matched events of a partition of their topic
        come in order. It keeps no position: a program that must not miss events while it is
        restarted reads the topic ``NAME.matched-events`` as a consumer group.

        Args:
            query_id: of a registered query; None: of all queries, also those to come.
            start: the first event: the first that is there; with ``latest``, the first that is
                sent after this call; or the first that was sent at a time or later.
            follow: whether to wait for more events.
            queries: name of the StandingQueries; None: the only ones that are declared.

        Raises:
            ValueError: if ``start`` is another text, or a time without a zone.
            ExtraMissingError: if a package is missing, which ``headrace[queries]`` installs.
            QueryMissingError: if the id is unknown.
            NotDeclaredError: if there are no such standing queries.
            TopicMissingError: if there is no topic of matched events.
            BrokerUnreachableError: if the brokers do not answer.
        """
        require_extra("queries")
        from headrace.queries.results.matched_events import matched_events
        from headrace.topics.tail import TailOptions

        options = TailOptions(start, until_end=not follow)
        return matched_events(self._loaded, query_id, options, queries=queries)
