"""The declaration of profiles that a pipeline writes."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar

from headrace.errors import ProfileStoreError
from headrace.metrics import Metric
from headrace.model import Guarantee
from headrace.model.fault import Fault
from headrace.settings import Secret
from headrace.sinks.api import (
    DeclaredRows,
    OnNull,
    Reprocessable,
    Sink,
    SinkContext,
    SinkDriver,
    on_null_faults,
)
from headrace.sinks.profiles.latest import Latest, Where
from headrace.sinks.profiles.metrics import PROFILE_METRICS
from headrace.sinks.profiles.registry import check_url, extra_of, open_store
from headrace.sinks.profiles.rules import ProfileRules, faults_of_two
from headrace.sinks.profiles.store import Profile, is_key

if TYPE_CHECKING:
    import pyarrow as pa

URL = "url"


@dataclass(frozen=True)
class Profiles(Sink, Reprocessable):
    """Sink: profiles of users, for a site to read. At least once; repeated rows change nothing.

    ::

        Profiles(
            "users",
            key="user_id",
            ttl=timedelta(days=30),
            fields=("country",),
            lists={"views": Latest(200, where={"kind": "view"})},
            forget={"kind": "forget"},
            event_id="event_id",
        )

    The result does not depend on the order or the repetition of rows, nor on the number of writers.
    :mod:`headrace.sinks.profiles` has the contract: versions, ties, what is rejected, and where a
    site finds the profiles in the store.

    Attributes:
        store: name of the store. Several pipelines may write to one, such as one of views and one
            of clicks.
        key: column of the user: a text or an integer.
        ttl: how long a row lives from its event time on, from a second to 36,500 days.
        fields: columns of which a profile has the newest value that is not null.
        lists: by name, of the latest events.
        forget: which rows remove all that is known of their user up to their event time, by a value
            of a column; True: every row, as of a topic of requests to be forgotten.
        event_id: column of the event id, a text or an integer; None: events are known by their
            event time and their values.
        event_time: column of the event time; None: the one that the first topic declares.
        on_null: what a record without a value does. DELETE: it removes all that is known of the
            user whom its key names, up to the record's timestamp.
    """

    store: str
    _: KW_ONLY
    key: str
    ttl: timedelta
    fields: tuple[str, ...] = ()
    lists: Mapping[str, Latest] = field(default_factory=dict)
    forget: Where | bool = False
    event_id: str | None = None
    event_time: str | None = None
    on_null: OnNull = OnNull.LEAVE_OUT

    kind: ClassVar[str] = "profiles"
    required_settings: ClassVar[tuple[str, ...]] = (URL,)
    guarantee: ClassVar[Guarantee] = Guarantee.AT_LEAST_ONCE
    metrics: ClassVar[tuple[Metric, ...]] = PROFILE_METRICS

    @property
    def target(self) -> str:
        """Name of the store."""
        return self.store

    @property
    def null_key(self) -> str | None:
        """The column of the user, where ``on_null`` is DELETE."""
        return self.key if self.on_null is OnNull.DELETE else None

    def extra_for(self, settings: Mapping[str, Secret]) -> str:
        """Returns the extra of the database that ``url`` names."""
        return extra_of(settings[URL]) if URL in settings else ""

    def settings_faults(self, settings: Mapping[str, Secret]) -> Iterator[Fault]:
        """Yields a fault unless ``url`` is the address of a store."""
        try:
            check_url(settings[URL])
        except ProfileStoreError as error:
            yield Fault(f"[sinks.profiles] url of headrace.toml: {error.reason}")

    def faults(self, rows: DeclaredRows) -> Iterator[Fault]:
        """Yields everything wrong with the declaration."""
        yield from ProfileRules(self, rows.columns, rows.event_time, rows.values).faults()
        yield from on_null_faults("Profiles", self.on_null, self.key, rows)
        own = self.event_time
        if self.on_null is OnNull.DELETE and own is not None and own != rows.event_time:
            message = f"Profiles.on_null is DELETE, and event_time {own!r} is not the topic's"
            yield Fault(message, f"Topic(event_time={own!r}): no other is known without a value")

    def faults_beside(self, other: Sink) -> Iterator[Fault]:
        """Yields a fault for what both declare, in two ways, of one store."""
        if not isinstance(other, Profiles):
            writer = type(other).__name__
            yield Fault(f"store {self.store!r} is written by Profiles here and by {writer}")
            return
        yield from faults_of_two(self, other)

    def open(self, context: SinkContext, schema: pa.Schema) -> SinkDriver:
        """Looks at the rows' columns, and whether the store answers.

        Raises:
            ExtraMissingError: if the client of the store is not installed.
            TableMismatchError: if the rows lack a column, or one has another type.
            SinkError: if the store refuses.
            SinkUnavailableError: if the store does not answer.
        """
        from headrace.sinks.profiles.changes import RowsSpec
        from headrace.sinks.profiles.writer import ProfilesDriver, ProfilesWriter

        spec = RowsSpec.of(self, context.event_time, schema)
        opening = functools.partial(open_store, context.settings[URL], self.store, self.ttl)
        return ProfilesDriver(self.label, opening, functools.partial(ProfilesWriter, opening, spec))

    def read(self, context: SinkContext, user: str) -> Profile | None:
        """Returns the profile of a user; None: there is none.

        Args:
            context: of any pipeline that writes to the store.
            user: value of the key column, as text.

        Raises:
            ExtraMissingError: if the client of the store is not installed.
            SinkUnavailableError: if the store does not answer.
            SinkError: if it refuses.
        """
        if not is_key(user):
            return None
        with closing(open_store(context.settings[URL], self.store, self.ttl)) as store:
            return store.read(user)

    def reprocessing_fault(
        self,
        columns: Collection[str] | None,  # noqa: ARG002
        event_id: str | None,  # noqa: ARG002
    ) -> Fault | None:
        """Returns None: existing rows change nothing."""
        return None
