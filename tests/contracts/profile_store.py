"""What every store of profiles must do: run on a real Redis and a real Cassandra.

A test module subclasses ``ProfileStoreContract`` and gives the fixture ``connect``, which opens
another connection to one store, with ``TTL``. The clock is the store's own.
"""

import json
import random
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.contracts.sink import AWKWARD
from tests.waiting import wait_for

from headrace.sinks.profiles.store import (
    ListChange,
    Profile,
    ProfileChange,
    ProfileEntry,
    ProfileField,
    ProfileStore,
    Version,
)

TTL = timedelta(days=30)
TTL_US = TTL // timedelta(microseconds=1)
SECOND = 1_000_000
MAX_ENTRIES = 3
FIELDS, LISTS = ("country", "device"), ("views", "clicks")
AWKWARD_USERS = [*AWKWARD, "{", "}", "{}", "a}:views", "a\0b", "new\nline", "@newest", "x" * 1_024]

# Their order differs by bytes, by UTF-16 and by a locale.
IDS = ["e1", "e10", "E2", "\uffff", "\U0001f600"]
VALUES = ["a", "B", "\uffff", "\U0001f600", 7]

Connect = Callable[[], ProfileStore]


@dataclass(frozen=True)
class Event:
    """A row, as a store sees it: it sets a field, is in a list, or forgets (``name`` is empty)."""

    at_us: int
    name: str
    event_id: str = ""
    value: Any = None


def change_of(user: str, *events: Event) -> ProfileChange:
    """One change with the greatest of all events, as tasks make it."""
    change = ProfileChange(user)
    for event in sorted(events, key=lambda each: (each.at_us, text_of(each))):
        version = Version(event.at_us, text_of(event))
        if not event.name:
            change.forgotten_us = event.at_us
        elif event.name in LISTS:
            entries = change.lists.setdefault(event.name, ListChange(MAX_ENTRIES)).entries
            entries[event.event_id] = version
        else:
            change.fields[event.name] = version
    for part in change.lists.values():
        latest = sorted(part.entries.items(), key=lambda each: (each[1].at_us, each[0]))
        part.entries = dict(latest[-part.max_entries :])
    return change


def text_of(event: Event) -> str:
    value = event.value if event.name in LISTS else [event.event_id, event.value]
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def profile_of(store: str, user: str, events: Iterable[Event], now_us: int) -> Profile | None:
    """The reference: the profile that a set of rows is, in the words of the contract."""
    rows = {event for event in events if event.at_us > now_us - TTL_US}
    forgotten = max((row.at_us for row in rows if not row.name), default=None)
    live = {row for row in rows if row.name and (forgotten is None or row.at_us > forgotten)}
    newest = max(
        [row.at_us for row in live] + ([] if forgotten is None else [forgotten]), default=0
    )
    if not newest:
        return None
    fields = {name: greatest(row for row in live if row.name == name) for name in FIELDS}
    lists = {name: latest(row for row in live if row.name == name) for name in LISTS}
    return Profile(
        store,
        user,
        {
            name: ProfileField(row.value, time_of(row.at_us), row.event_id)
            for name, row in fields.items()
            if row
        },
        {name: entries for name, entries in lists.items() if entries},
        None if forgotten is None else time_of(forgotten),
        time_of(newest + TTL_US),
    )


def greatest(rows: Iterable[Event]) -> Event | None:
    return max(rows, key=lambda row: (row.at_us, text_of(row).encode()), default=None)


def latest(rows: Iterable[Event]) -> tuple[ProfileEntry, ...]:
    by_id: dict[str, list[Event]] = {}
    for row in rows:
        by_id.setdefault(row.event_id, []).append(row)
    events = [greatest(repeats) for repeats in by_id.values()]
    events.sort(key=lambda row: (row.at_us, row.event_id.encode()), reverse=True)
    return tuple(
        ProfileEntry(time_of(row.at_us), row.event_id, row.value) for row in events[:MAX_ENTRIES]
    )


def time_of(microseconds: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)


def histories() -> st.SearchStrategy[list[Event]]:
    """Rows of one user with many ties; times are seconds after a start that the test chooses."""
    seconds = st.sampled_from([0, 1, 2, 3, 3, 4, -TTL_US // SECOND * 2])
    names = st.sampled_from(["views", "views", "views", "clicks", "country", "device"])
    events = st.builds(Event, seconds, names, st.sampled_from(IDS), st.sampled_from(VALUES))
    forgets = st.builds(Event, st.sampled_from([0, 0, 1, 2]), st.just(""))
    some = st.lists(st.one_of(events, forgets), max_size=8)
    many = st.lists(events, min_size=25, max_size=40)
    return st.one_of(some, many, st.tuples(some, many).map(lambda both: [*both[0], *both[1]]))


def placed(history: Sequence[Event], start_us: int) -> list[Event]:
    return [
        Event(start_us + each.at_us * SECOND, each.name, each.event_id, each.value)
        for each in history
    ]


def parts_of(events: Sequence[Event], chance: random.Random) -> Iterator[Sequence[Event]]:
    """The events twice, shuffled and cut at any places."""
    doubled = [*events, *events]
    chance.shuffle(doubled)
    while doubled:
        size = chance.randint(1, 6)
        yield doubled[:size]
        del doubled[:size]


class ProfileStoreContract:
    """The suite."""

    store_name = "users"

    @pytest.fixture
    def store(self, connect: Connect) -> Iterator[ProfileStore]:
        with closing(connect()) as opened:
            yield opened

    @pytest.fixture(scope="class")
    @classmethod
    def writers(cls, connect: Connect) -> Iterator[list[ProfileStore]]:
        """Two connections to the store."""
        with ExitStack() as stack:
            yield [stack.enter_context(closing(connect())) for _ in range(2)]

    @pytest.fixture
    def user(self) -> str:
        return uuid.uuid4().hex

    # Threads of a store's driver use `random`, too: Hypothesis takes them for the strategies.
    @pytest.mark.filterwarnings("ignore:Do not use the `random` module inside strategies")
    @given(histories(), st.randoms(use_true_random=False))
    @settings(max_examples=150)
    def test_order_repetition_and_the_number_of_writers_do_not_matter(
        self, writers: list[ProfileStore], history: list[Event], chance: random.Random
    ) -> None:
        user, now_us = uuid.uuid4().hex, writers[0].now_us()
        events = placed(history, now_us - 3_600 * SECOND)

        def write(writer: ProfileStore, parts: Sequence[Sequence[Event]]) -> None:
            for part in parts:
                writer.merge([change_of(user, *part)])

        work = [list(parts_of(events, chance)) for _ in writers]
        with ThreadPoolExecutor(len(writers)) as pool:
            list(pool.map(write, writers, work))
        assert writers[1].read(user) == profile_of(self.store_name, user, events, now_us)

    def test_a_user_without_rows_has_no_profile(self, store: ProfileStore, user: str) -> None:
        assert store.read(user) is None
        store.merge([])
        store.merge([ProfileChange(user)])
        assert store.read(user) is None

    def test_the_clock_runs(self, store: ProfileStore) -> None:
        assert 0 < store.now_us() < store.now_us() + SECOND

    def test_users_have_profiles_of_their_own_however_they_are_called(
        self, store: ProfileStore
    ) -> None:
        now_us = store.now_us()
        prefix = uuid.uuid4().hex
        users = [prefix + name for name in AWKWARD_USERS]
        store.merge(change_of(user, Event(now_us, "country", "e", user)) for user in users)
        store.merge(change_of(user, Event(now_us, "views", user, user)) for user in users)
        for user in users:
            profile = store.read(user)
            assert profile is not None
            assert (profile.user, profile.fields["country"].value) == (user, user)
            assert [entry.event_id for entry in profile.lists["views"]] == [user]

    def test_values_are_read_back_as_they_were(self, store: ProfileStore, user: str) -> None:
        now_us = store.now_us()
        value = {"text": " a\n\"'\0\\ ż 😀", "number": 2**63 - 1, "none": None, "list": [1.5, True]}
        store.merge([change_of(user, Event(now_us, "country", "a b", value))])
        store.merge([change_of(user, Event(now_us - 1, "views", "a b", value))])
        profile = store.read(user)
        assert profile is not None
        assert profile.fields["country"] == ProfileField(value, time_of(now_us), "a b")
        assert profile.lists["views"] == (ProfileEntry(time_of(now_us - 1), "a b", value),)

    def test_a_list_may_be_long(self, store: ProfileStore, user: str) -> None:
        now_us = store.now_us()
        entries = {f"e{number:05}": Version(now_us - number, "{}") for number in range(12_000)}
        for part in (dict(list(entries.items())[:9_000]), dict(list(entries.items())[3_000:])):
            store.merge([ProfileChange(user, lists={"views": ListChange(10_000, part)})])
        profile = store.read(user)
        assert profile is not None
        expected = [f"e{number:05}" for number in range(10_000)]
        assert [entry.event_id for entry in profile.lists["views"]] == expected

    def test_a_shorter_list_is_cut_by_the_next_row(self, store: ProfileStore, user: str) -> None:
        now_us = store.now_us()
        for number, max_entries in enumerate([3, 3, 3, 1]):
            part = {f"e{number}": Version(now_us + number, "{}")}
            store.merge([ProfileChange(user, lists={"views": ListChange(max_entries, part)})])
        profile = store.read(user)
        assert profile is not None
        assert [entry.event_id for entry in profile.lists["views"]] == ["e3"]

    def test_forgetting_reaches_the_lists_and_fields_of_others(
        self, store: ProfileStore, user: str
    ) -> None:
        now_us = store.now_us()
        store.merge([change_of(user, Event(now_us, "views", "e1", 1))])
        store.merge([change_of(user, Event(now_us, "country", "e1", "PL"))])
        store.merge([change_of(user, Event(now_us + 1, "clicks", "e2", 1))])
        store.merge([ProfileChange(user, forgotten_us=now_us)])
        profile = store.read(user)
        assert profile is not None
        assert (dict(profile.fields), list(profile.lists)) == ({}, ["clicks"])
        assert profile.forgotten == time_of(now_us)

    def test_rows_from_before_do_not_bring_a_user_back(
        self, store: ProfileStore, user: str
    ) -> None:
        now_us = store.now_us()
        store.merge([ProfileChange(user, forgotten_us=now_us)])
        store.merge([change_of(user, Event(now_us, "views", "e1", 1))])
        store.merge([change_of(user, Event(now_us - SECOND, "country", "e1", "PL"))])
        assert store.read(user) == Profile(
            self.store_name, user, {}, {}, time_of(now_us), time_of(now_us + TTL_US)
        )

    def test_old_rows_prolong_no_profile(self, store: ProfileStore, user: str) -> None:
        now_us = store.now_us()
        for ago in (0, 5, 1):
            store.merge([change_of(user, Event(now_us - ago * SECOND, "views", f"e{ago}", 1))])
        profile = store.read(user)
        assert profile is not None
        assert profile.expires == time_of(now_us + TTL_US)
        store.merge([change_of(user, Event(now_us - TTL_US, "clicks", "old", 1))])
        assert store.read(user) == profile

    def test_a_row_that_is_too_old_leaves_nothing(self, store: ProfileStore, user: str) -> None:
        old = store.now_us() - TTL_US
        store.merge([change_of(user, Event(old, "views", "e", 1), Event(old, "country", "e", 1))])
        store.merge([ProfileChange(user, forgotten_us=old)])
        assert store.read(user) is None

    def test_a_profile_ends_by_itself_and_its_marker_too(
        self, store: ProfileStore, user: str
    ) -> None:
        start = store.now_us() - TTL_US
        store.merge([change_of(user, Event(start + 2 * SECOND, "country", "e", 1))])
        store.merge([ProfileChange(user, forgotten_us=start + SECOND)])
        profile = store.read(user)
        assert profile is None or profile.forgotten in {None, time_of(start + SECOND)}
        wait_for(lambda: store.read(user) is None)

    def test_what_is_old_goes_while_the_profile_lives(self, store: ProfileStore, user: str) -> None:
        now_us = store.now_us()
        ends = now_us - TTL_US + SECOND
        old = [Event(ends, "views", "old", 1), Event(ends, "country", "old", "PL")]
        store.merge([change_of(user, *old, Event(now_us, "views", "new", 1))])

        def lists_of(profile: Profile | None) -> list[str]:
            assert profile is not None
            return [entry.event_id for entry in profile.lists["views"]]

        wait_for(lambda: lists_of(store.read(user)) == ["new"])
        profile = store.read(user)
        assert profile is not None
        assert profile.fields == {}
