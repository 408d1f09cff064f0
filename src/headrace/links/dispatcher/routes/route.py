"""Which records of a topic are sent to one target, and with which headers, as columns of Spark.

Real-time mode runs no Python, so that a route is written in functions that Spark knows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.errors import LinkRecordError
from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.origin import ORIGIN
from headrace.links.copy_ends import Copies
from headrace.links.dispatcher.declaration import DispatchMode, Home
from headrace.links.target import Rejection
from headrace.model import TopicPartition
from headrace.spark.header_columns import TIMESTAMP, header, headers_or_empty, origin_sites

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@dataclass(frozen=True)
class DispatcherRoute:
    """One target of a dispatcher, with the clusters of both sites.

    Attributes:
        dispatcher: its name.
        group: of the target's cluster, in which positions are committed. Spark's readers at this
            site have groups that begin with it.
        source_site: this site.
        target_site: where records are sent to.
        source: librdkafka's settings of this site's cluster, secrets revealed.
        target: those of the target's cluster.
        topic: that is read.
        target_topic: that is written.
        home: where the user of an event is at home.
        related: the sites whose records the target wants; ``None``: the dispatcher declares none.
        sites: all sites of the project.
        mode: how Spark runs it.
        commit_seconds: the interval of commits in real-time mode.
    """

    dispatcher: str
    group: str
    source_site: str
    target_site: str
    source: ClientConfig = field(repr=False)
    target: ClientConfig = field(repr=False)
    topic: str
    target_topic: str
    home: Home | None = None
    related: frozenset[str] | None = None
    sites: frozenset[str] = frozenset()
    mode: DispatchMode = DispatchMode.REAL_TIME
    commit_seconds: float = 60.0

    def copy_of(self, source: TopicPartition) -> TopicPartition:
        """Returns the partition of the target that one of the source is sent to."""
        return TopicPartition(self.target_topic, source.partition)

    def copies(self, sources: Iterable[TopicPartition]) -> Copies:
        """Returns the partitions of the target that those of the source are sent to."""
        places = {self.copy_of(source): source for source in sources}
        return Copies(self.target, self.group, self.target_site, self.source_site, places)

    def record_error(self, source: TopicPartition, rejection: Rejection) -> LinkRecordError:
        """Returns the error of a record that the target does not take."""
        return LinkRecordError(
            *self.named(self.target_site),
            source.path,
            rejection.offset,
            rejection.reason,
            topic=self.target_topic,
            setting=rejection.setting,
        )

    def named(self, site: str) -> tuple[str, str, str]:
        """Returns the kind of link, its name and a site, for an error."""
        return "dispatcher", self.dispatcher, site

    def outgoing(self, records: DataFrame) -> DataFrame:
        """Returns what is sent of records of the topic.

        Args:
            records: of Spark's Kafka source, with headers.

        Returns:
            Rows for Spark's Kafka sink: ``topic``, ``partition``, ``key``, ``value``, ``headers``.
        """
        from pyspark.sql import functions as f

        headers = headers_or_empty(f.col("headers"))
        return records.where(self.is_sent(headers)).select(
            f.lit(self.target_topic).alias("topic"),
            "partition",
            "key",
            "value",
            self._headers(headers).alias("headers"),
        )

    def is_sent(self, headers: Column) -> Column:
        """Returns whether records go to the target.

        Args:
            headers: of the records, none of them null.
        """
        from pyspark.sql import functions as f

        sites = origin_sites(headers)
        is_routed = f.lit(self.home is None and self.related is None)
        if self.home is not None:
            is_home = self._home(self.home) == self.target_site
            is_routed = is_routed | f.coalesce(is_home, f.lit(True))
        if self.related is not None:
            entered = f.coalesce(f.get(sites, f.lit(0)), f.lit(self.source_site))
            is_routed = is_routed | entered.isin(*self.related)
        return is_routed & ~f.array_contains(sites, self.target_site)

    def _home(self, home: Home) -> Column:
        """Returns the site where a record's user is at home; null: not known."""
        from pyspark.sql import functions as f

        value = f.get_json_object(f.col("value").cast("string"), f"$.{home.field}")
        homes = home.sites or {site: site for site in self.sites}
        pairs = [f.lit(text) for pair in homes.items() for text in pair]
        return f.try_element_at(f.create_map(*pairs), value)

    def _headers(self, headers: Column) -> Column:
        from pyspark.sql import functions as f

        place = f.concat_ws("/", f.lit(self.source_site), "topic", "partition", "offset")
        time = f.unix_millis("timestamp").cast("string")
        has_time = f.exists(headers, lambda header: header["key"] == TIMESTAMP)
        timed = f.when(has_time, headers).otherwise(
            f.array_append(headers, header(TIMESTAMP, time))
        )
        return f.array_append(timed, header(ORIGIN, place))
