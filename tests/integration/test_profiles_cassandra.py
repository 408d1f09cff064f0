"""Profiles in a real Cassandra: the contracts of stores and sinks, and what its troubles do."""

import json
import random
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from cassandra import ReadTimeout
from cassandra.cluster import NoHostAvailable, Session
from cassandra.protocol import ServerError
from click.testing import CliRunner
from tests.contracts.profile_store import (
    SECOND,
    TTL,
    TTL_US,
    Event,
    ProfileStoreContract,
    change_of,
    profile_of,
    time_of,
)
from tests.integration.cassandra_server import CREATE_KEYSPACE, KEYSPACE, CassandraServer
from tests.integration.certificates import make_certificate
from tests.integration.profile_project import write_project
from tests.waiting import wait_for

from headrace import Latest, Profiles
from headrace.cli import main
from headrace.errors import (
    ProfileStoreAccessError,
    ProfileStoreError,
    ProfileStoreUnavailableError,
    ProfileTableMissingError,
    SinkError,
    SinkUnavailableError,
)
from headrace.settings import Secret
from headrace.sinks.api import SinkContext
from headrace.sinks.profiles import cassandra as cassandra_profiles
from headrace.sinks.profiles.cassandra import BatchSender
from headrace.sinks.profiles.cassandra_address import TABLE
from headrace.sinks.profiles.cassandra_connection import CassandraConnection
from headrace.sinks.profiles.registry import open_store
from headrace.sinks.profiles.store import ListChange, ProfileChange, Version
from headrace.testing import SinkContract, SinkLab
from headrace.testing.sink_contract import row

YEARS = timedelta(days=36_500)
YEAR_US = 365 * 86_400 * SECOND
PASSWORD = "cassandra"  # of the role that a new server has


@pytest.fixture(scope="module")
def connect(cassandra):
    return lambda: prepared_store(cassandra.url())


def prepared_store(url, name="users", ttl=TTL):
    """A store as the start of a pipeline leaves it."""
    store = open_store(url, name, ttl)
    store.prepare()
    return store


def stored_rows(cassandra, user, store="users"):
    """The rows of a user, also those that readers leave out."""
    select = f"SELECT kind, json, TTL(json) AS ttl FROM {KEYSPACE}.headrace_profiles"
    where = " WHERE store = %s AND user = %s"
    return cassandra.query(select + where, parameters=(store, user))


class TestCassandraProfileStore(ProfileStoreContract):
    def test_rows_expire_when_they_are_no_longer_live_and_a_minute_later_at_most(
        self, store, user, cassandra
    ):
        now_us = store.now_us()
        day = 86_400 * SECOND
        events = [Event(now_us - day, "views", "e", 1), Event(now_us + day, "country", "e", 1)]
        store.merge([change_of(user, *events, Event(now_us - 2 * day, ""))])
        left = {each.kind: each.ttl - TTL.total_seconds() for each in stored_rows(cassandra, user)}
        assert left.keys() == {"entry", "field", "forgotten"}
        for kind, days in {"entry": -1, "field": 1, "forgotten": -2}.items():
            assert 0 < left[kind] - days * 86_400 <= 61

    def test_what_is_replaced_forgotten_or_too_old_is_no_longer_stored(
        self, store, user, cassandra
    ):
        now_us, secret = store.now_us(), uuid.uuid4().hex
        for number in (0, 5, 3, 9, 1):
            store.merge([change_of(user, Event(now_us + number, "country", "e", number))])
        assert [each.json for each in stored_rows(cassandra, user)] == ['["e",9]']
        store.merge([change_of(user, Event(now_us + 20, "views", secret, secret))])
        late = [
            change_of(user, Event(at_us, name, secret, secret))
            for at_us in (now_us + 20, now_us - TTL_US)
            for name in ("views", "country")
        ]
        for change in (change_of(user, Event(now_us + 20, "")), *late):
            store.merge([change])
            assert [each.kind for each in stored_rows(cassandra, user)] == ["forgotten"]

    def test_a_list_that_gets_one_entry_at_a_time_does_not_grow_without_bound(
        self, store, user, cassandra
    ):
        now_us = store.now_us()
        store.merge(change_of(user, Event(now_us + n, "views", f"e{n}", n)) for n in range(3_000))
        assert len(stored_rows(cassandra, user)) < 500
        expected = ["e2999", "e2998", "e2997"]
        assert [entry.event_id for entry in store.read(user).lists["views"]] == expected

    def test_a_list_of_few_ids_that_are_seen_often_does_not_grow_without_bound(
        self, store, user, cassandra
    ):
        now_us = store.now_us()
        seen = (Event(now_us + n, "views", f"e{n % 2}", n) for n in range(3_000))
        store.merge(change_of(user, each) for each in seen)
        assert len(stored_rows(cassandra, user)) < 500
        [last, former] = store.read(user).lists["views"]
        assert (last.event_id, former.event_id) == ("e1", "e0")
        assert last.event_time > former.event_time == time_of(now_us + 2_998)

    def test_a_list_is_trimmed_to_what_its_newest_entry_says(self, store, user, cassandra):
        now_us = store.now_us()

        def write(at_us, max_entries):
            part = ListChange(max_entries, {f"e{at_us - now_us}": Version(at_us, "{}")})
            return ProfileChange(user, lists={"views": part})

        store.merge(write(now_us + n, 6) for n in range(6))
        store.merge(write(now_us - n, 2) for n in range(1, 1_000))
        assert len(stored_rows(cassandra, user)) < 500
        kept = [entry.event_id for entry in store.read(user).lists["views"]]
        assert kept == ["e5", "e4", "e3", "e2", "e1", "e0"]

    def test_a_list_that_can_not_be_trimmed_is_written_all_the_same(
        self, store, user, monkeypatch, caplog
    ):
        def fail(*_):
            raise ReadTimeout("too few replicas answered")

        monkeypatch.setattr(store, "trim", fail)
        now_us = store.now_us()
        store.merge(change_of(user, Event(now_us + n, "views", f"e{n}", n)) for n in range(1_000))
        assert store.read(user).lists["views"][0].event_id == "e999"
        [warning] = [each for each in caplog.records if each.name.startswith("headrace.")]
        assert "too few replicas answered" in warning.getMessage()

    def test_a_row_without_its_values_is_none(self, store, user, cassandra):
        now_us = store.now_us()
        store.merge([change_of(user, Event(now_us, "country", "e", 1))])
        into = f"INTO {KEYSPACE}.headrace_profiles (store, user, kind, name, at_us, digest)"
        insert = f"INSERT {into} VALUES ('users', %s, %s, %s, %s, 0x00)"
        for kind, name in (("field", "country"), ("entry", "views"), ("forgotten", "")):
            cassandra.query(insert, parameters=(user, kind, name, now_us + 1))
        profile = store.read(user)
        assert {name: field.value for name, field in profile.fields.items()} == {"country": 1}
        assert not any(profile.lists.values())
        assert profile.forgotten is None

    def test_a_change_of_six_mebibytes_is_one_and_values_may_have_one(self, store, user):
        now_us = store.now_us()
        entries = {f"e{n:03}": Version(now_us + n, json.dumps("x" * 6_000)) for n in range(1_000)}
        change = ProfileChange(user, lists={"views": ListChange(1_000, entries)})
        lengths = set()
        with closing(open_store(store_url(store), "users", TTL)) as reader:
            with ThreadPoolExecutor(1) as pool:
                merging = pool.submit(store.merge, [change])
                while not merging.done():
                    profile = reader.read(user)
                    lengths.add(0 if profile is None else len(profile.lists["views"]))
            merging.result()
            lengths.add(len(reader.read(user).lists["views"]))
        assert lengths <= {0, 1_000}
        large = {f"f{n}": Version(now_us, json.dumps(["e", "x" * 2**20])) for n in range(20)}
        store.merge([ProfileChange(user, fields=large)])
        assert {len(each.value) for each in store.read(user).fields.values()} == {2**20}

    def test_a_longer_list_is_one_when_its_events_are_written_again(self, store, user, monkeypatch):
        # Which changes trim is chosen by their times. What is trimmed stays away.
        monkeypatch.setattr(store, "trim", lambda *_: None)
        now_us = store.now_us()
        entries = {f"e{n}": Version(now_us + n, "{}") for n in range(3)}
        for max_entries, length in ((1, 1), (3, 3), (2, 3)):
            change = ProfileChange(user, lists={"views": ListChange(max_entries, entries)})
            store.merge([change])
            assert len(store.read(user).lists["views"]) == length

    def test_a_change_that_is_merged_again_changes_nothing(self, store, user, cassandra):
        now_us = store.now_us()
        events = [Event(now_us, "views", "e", 1), Event(now_us, "country", "e", 1)]
        change = change_of(user, *events, Event(now_us - 1, ""))
        for _ in range(3):
            store.merge([change])
            assert len(stored_rows(cassandra, user)) == 3


def store_url(store):
    address = store._address
    return Secret(f"cassandra://127.0.0.1:{address.hosts[0][1]}/{address.keyspace}")


class TestProfiles(SinkContract):
    @pytest.fixture
    def lab(self, cassandra):
        name = f"lab-{uuid.uuid4().hex}"
        sink = Profiles(name, key="id", ttl=YEARS, lists={"all": Latest(5)}, event_time="at")
        context = SinkContext("p", "unused", {}, {"url": cassandra.url()}, "at")

        def read():
            with closing(prepared_store(cassandra.url(), name, YEARS)) as store:
                select = f"SELECT DISTINCT store, user FROM {KEYSPACE}.headrace_profiles"
                users = [each.user for each in cassandra.query(select) if each.store == name]
                profiles = [store.read(user) for user in users]
            return [
                {"id": int(each.user), "at": entry.event_time, **entry.values}
                for each in profiles
                for entry in each.lists["all"]
            ]

        return SinkLab(sink, context, read, bad_row={**row(9), "id": None})


def test_event_times_before_1970_and_far_in_the_future_have_their_order_on_disk_too(cassandra):
    times = [-40 * YEAR_US, -20 * YEAR_US, -1, 0, 1, 2, 2**52]
    users = {uuid.uuid4().hex: random.Random(seed) for seed in range(2)}

    def changes_of(user):
        yield from (change_of(user, Event(at_us, "country", "e", at_us)) for at_us in times)
        yield from (change_of(user, Event(at_us, "views", f"e{at_us}", 1)) for at_us in times[:3])
        yield from (change_of(user, Event(at_us, "")) for at_us in (-30 * YEAR_US, -YEAR_US))

    with closing(prepared_store(cassandra.url(), "old", YEARS)) as store:
        for repeats in (2, 1):
            for user, chance in users.items():
                changes = [*changes_of(user)] * repeats
                chance.shuffle(changes)
                store.merge(changes)
            cassandra.nodetool("flush", KEYSPACE)
        cassandra.nodetool("compact", KEYSPACE)
        for profile in map(store.read, users):
            assert profile.fields["country"].value == 2**52
            assert [entry.event_id for entry in profile.lists["views"]] == ["e-1"]
            assert profile.forgotten == time_of(-YEAR_US)
            assert profile.expires == time_of(2**52) + YEARS
        for at_us in (0, 1):
            store.merge(change_of(user, Event(at_us, "")) for user in users)
            cassandra.nodetool("flush", KEYSPACE)
            for profile in map(store.read, users):
                assert (profile.forgotten, dict(profile.lists)) == (time_of(at_us), {})


def test_writers_that_create_the_table_at_once_all_can_write(cassandra):
    keyspace = f"k{uuid.uuid4().hex}"
    cassandra.query(CREATE_KEYSPACE.format(keyspace))

    def write(number):
        with closing(prepared_store(cassandra.url(keyspace))) as store:
            store.merge([change_of("u", Event(store.now_us(), "views", f"e{number}", 1))])
            return store.read("u")

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(write, range(6)))
    assert len(write(6).lists["views"]) == 3
    cassandra.query(f"DROP KEYSPACE {keyspace}")


@pytest.mark.parametrize("failures", [1, 3])
def test_a_table_that_the_node_has_not_opened_yet_is_waited_for(cassandra, monkeypatch, failures):
    keyspace = f"k{uuid.uuid4().hex}"
    cassandra.query(CREATE_KEYSPACE.format(keyspace))
    select, requests = CassandraConnection.select, []

    def select_too_early(connection, query, parameters=()):
        requests.append(query)
        if TABLE in query and requests.count(query) <= failures:
            error = ServerError(0, "java.lang.IllegalArgumentException: Unknown CF 8ffbe440", None)
            raise NoHostAvailable("Unable to complete the operation", {"127.0.0.1": error})
        return select(connection, query, parameters)

    monkeypatch.setattr(CassandraConnection, "select", select_too_early)
    with closing(prepared_store(cassandra.url(keyspace))) as store:
        assert store.read("u") is None
    cassandra.query(f"DROP KEYSPACE {keyspace}")


def test_a_node_that_goes_on_to_fail_is_reported(cassandra, monkeypatch):
    error = ServerError(0, "java.lang.IllegalArgumentException: Unknown CF 8ffbe440", None)

    def fail(*_):
        raise NoHostAvailable("Unable to complete the operation", {"127.0.0.1": error})

    with closing(open_store(cassandra.url(), "users", TTL)) as store:
        store.now_us()
        monkeypatch.setattr(CassandraConnection, "select", fail)
        with pytest.raises(ProfileStoreUnavailableError, match="Unknown CF"):
            store.prepare()


def test_a_table_that_is_missing_is_created_by_the_start_of_a_pipeline_alone(cassandra):
    keyspace = f"k{uuid.uuid4().hex}"
    cassandra.query(CREATE_KEYSPACE.format(keyspace))
    with closing(open_store(cassandra.url(keyspace), "users", TTL)) as store:
        change = change_of("u", Event(store.now_us(), "country", "e", "PL"))
        for use in (lambda: store.read("u"), lambda: store.merge([change])):
            with pytest.raises(ProfileTableMissingError, match="no table"):
                use()
        store.prepare()
        assert store.read("u") is None
    cassandra.query(f"DROP KEYSPACE {keyspace}")


def test_every_request_may_be_sent_to_another_node_too_where_one_hangs(cassandra, monkeypatch):
    prepared_store(cassandra.url()).close()
    requests, execute_async = [], Session.execute_async

    def recorded(session, request, *arguments, **options):
        requests.append(request)
        return execute_async(session, request, *arguments, **options)

    monkeypatch.setattr(Session, "execute_async", recorded)
    with closing(prepared_store(cassandra.url())) as store:
        user, now_us = uuid.uuid4().hex, store.now_us()
        for number in range(300):
            store.merge([change_of(user, Event(now_us + number, "views", f"e{number}", number))])
        assert store.read(user) is not None
    assert len(requests) > 300
    assert [request for request in requests if not request.is_idempotent] == []


def test_the_time_is_asked_for_once_and_again_when_that_was_long_ago(cassandra, monkeypatch):
    asked, select = [], CassandraConnection.select

    def recorded(connection, *query):
        asked.append(query)
        return select(connection, *query)

    with closing(open_store(cassandra.url(), "users", TTL)) as store:
        first_us = store.now_us()
        monkeypatch.setattr(CassandraConnection, "select", recorded)
        monkeypatch.setattr(cassandra_profiles, "MAX_CLOCK_AGE_US", 3_600 * SECOND)
        wait_for(lambda: store.now_us() > first_us + SECOND)
        assert asked == []
        monkeypatch.setattr(cassandra_profiles, "MAX_CLOCK_AGE_US", -1)
        times_us = [store.now_us() for _ in range(3)]
        assert len(asked) == 3
        assert first_us + SECOND - 1_000 < min(times_us)  # as exact as the server's clock
        assert max(times_us) < first_us + 3_600 * SECOND


def test_a_table_that_is_dropped_while_it_is_used_is_named(cassandra):
    keyspace = f"k{uuid.uuid4().hex}"
    cassandra.query(CREATE_KEYSPACE.format(keyspace))
    with closing(prepared_store(cassandra.url(keyspace))) as store:
        change = change_of("u", Event(store.now_us(), "country", "e", "PL"))
        store.merge([change])
        cassandra.query(f"DROP TABLE {keyspace}.headrace_profiles")
        with pytest.raises(ProfileTableMissingError):
            store.merge([change])
        with pytest.raises(ProfileTableMissingError):
            store.read("u")
    cassandra.query(f"DROP KEYSPACE {keyspace}")


def test_a_table_with_other_columns_is_refused_at_the_start(cassandra):
    keyspace = f"k{uuid.uuid4().hex}"
    cassandra.query(
        CREATE_KEYSPACE.format(keyspace),
        f"""
        CREATE TABLE {keyspace}.headrace_profiles (
            store text, user text, kind text, name text, at_us bigint, digest text, event_id text,
            json text, max_entries int,
            PRIMARY KEY ((store, user), kind, name, at_us, digest)
        )
        """,
    )
    with pytest.raises(ProfileStoreError, match=r"`digest` of the table .* is text, and not blob"):
        warning_of(cassandra.url(keyspace))
    cassandra.query(f"DROP KEYSPACE {keyspace}")


def test_a_keyspace_with_more_replicas_than_nodes_is_waited_for_with_the_reason(cassandra):
    keyspace = f"k{uuid.uuid4().hex}"
    cassandra.query(
        CREATE_KEYSPACE.format(keyspace).replace("'datacenter1': 1", "'datacenter1': 3")
    )
    with pytest.raises(ProfileStoreUnavailableError, match="it needs 2, and there are 1"):
        warning_of(cassandra.url(keyspace))
    cassandra.query(f"DROP KEYSPACE {keyspace}")


def test_rows_that_another_program_wrote_are_an_error_that_names_the_user(cassandra):
    with closing(prepared_store(cassandra.url())) as store:
        user = uuid.uuid4().hex
        cassandra.query(
            f"INSERT INTO {KEYSPACE}.headrace_profiles (store, user, kind, name, at_us, digest,"
            " json) VALUES (%s, %s, 'field', 'country', %s, 0x00, 'no JSON')",
            parameters=("users", user, store.now_us()),
        )
        with pytest.raises(SinkError, match=user):
            store.read(user)


def test_a_change_of_a_user_with_a_long_key_is_one_batch_as_well(cassandra, monkeypatch):
    sizes, send = [], BatchSender.send

    def counted(sender, batch):
        sizes.append(len(batch))
        send(sender, batch)

    monkeypatch.setattr(BatchSender, "send", counted)
    with closing(prepared_store(cassandra.url())) as store:
        now_us = store.now_us()
        entries = {f"e{number:04}": Version(now_us, f'"{"x" * 4_000}"') for number in range(1_000)}
        fields = {
            f"f{number:03}": Version(now_us, f'["","{"x" * 1_800}"]') for number in range(600)
        }
        for user in ("u", "u" * 1_024):
            store.merge([ProfileChange(user, None, fields, {"views": ListChange(1_000, entries)})])
    assert [size for size in sizes if size > 1] == [2_200, 2_200]


def test_a_keyspace_that_may_lose_profiles_is_warned_of(cassandra):
    assert warning_of(cassandra.url()) == ""
    keyspace = f"k{uuid.uuid4().hex}"
    cassandra.query(CREATE_KEYSPACE.format(keyspace) + " AND durable_writes = false")
    assert "`durable_writes = false`" in warning_of(cassandra.url(keyspace))
    cassandra.query(f"DROP KEYSPACE {keyspace}")


def warning_of(url):
    with closing(open_store(url, "users", TTL)) as store:
        return store.prepare()


def test_a_keyspace_that_is_missing_is_an_error_with_the_statement_for_it(cassandra):
    with pytest.raises(SinkError, match='CREATE KEYSPACE "nowhere" WITH replication') as raised:
        warning_of(cassandra.url("nowhere"))
    assert f"127.0.0.1:{cassandra.port}/nowhere" in str(raised.value)


WRITER = """
import json, random, sys
from datetime import timedelta
from headrace.settings import Secret
from headrace.sinks.profiles.cassandra import BatchSender
from headrace.sinks.profiles.registry import open_store
from tests.contracts.profile_store import TTL, Event, change_of

url, seed, texts = sys.argv[1], sys.argv[2], sys.stdin.read()
parts = [(user, [Event(*event) for event in part]) for user, part in json.loads(texts)]
chance = random.Random(seed)
store = open_store(Secret(url), "users", TTL)
while True:
    chance.shuffle(parts)
    for user, part in parts:
        store.merge([change_of(user, *part)])
        print("merged", flush=True)
"""


@pytest.mark.drill
def test_writers_that_are_killed_leave_what_a_repetition_completes(cassandra, connect):
    chance = random.Random(1)
    with closing(connect()) as store:
        now_us = store.now_us()
        events = {uuid.uuid4().hex: events_of(chance, now_us) for _ in range(3)}
        parts = [
            (user, some[at : at + 4]) for user, some in events.items() for at in range(0, 200, 4)
        ]
        for seed in range(4):
            kill_writers(cassandra, seed, parts, merges=chance.randrange(20, 60))
        store.merge(change_of(user, *part) for user, part in parts)
        for user, rows in events.items():
            assert store.read(user) == profile_of("users", user, rows, now_us)


def events_of(chance, now_us):
    """200 rows with ties, some of which forget."""
    names = ["views", "clicks", "country", "device"]
    return [
        Event(now_us - chance.randrange(50) * SECOND, "")
        if chance.random() < 0.01
        else Event(
            now_us - chance.randrange(40) * SECOND, chance.choice(names), f"e{number // 2}", number
        )
        for number in range(200)
    ]


def kill_writers(server, seed, parts, merges):
    """Two processes write the parts in different orders, and are killed while they do."""
    texts = json.dumps(
        [(user, [list(vars(each).values()) for each in part]) for user, part in parts]
    )
    url, root = server.url().reveal(), Path(__file__).parents[2]
    pipe = subprocess.PIPE
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, url, f"{seed} {number}"],
            stdin=pipe,
            stdout=pipe,
            cwd=root,
            text=True,
        )
        for number in range(2)
    ]
    for writer in writers:
        with writer.stdin:
            writer.stdin.write(texts)
    for writer in writers:
        for _ in range(merges):
            assert writer.stdout.readline() == "merged\n"
        writer.kill()
    for writer in writers:
        writer.wait()
        writer.stdout.close()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificates")
    make_certificate(folder)
    return folder


@pytest.fixture(scope="module")
def own_server(tmp_path_factory, stop_at_end, certificates):
    folder = tmp_path_factory.mktemp("own")
    server = CassandraServer(folder, PASSWORD, keeps_all=True, certificates=certificates)
    stop_at_end(server.folder)
    server.run()
    server.query(CREATE_KEYSPACE.format(KEYSPACE))
    prepared_store(server.url()).close()
    yield server
    server.kill()


@pytest.mark.drill
def test_a_server_that_is_killed_comes_back_with_what_it_has_acknowledged(own_server):
    with closing(open_store(own_server.url(options="?timeout=5"), "users", TTL)) as store:
        now_us = store.now_us()
        changes = [
            change_of(
                f"u{n}", Event(now_us, "country", "e", "x" * 100), Event(now_us, "views", "e", n)
            )
            for n in range(500)
        ]
        store.merge(changes)
        store.merge([change_of("u0", Event(now_us, ""))])
        own_server.kill()
        with pytest.raises(SinkUnavailableError) as raised:
            store.merge(changes)
        assert PASSWORD + "@" not in str(raised.value)
    own_server.run()
    with closing(open_store(own_server.url(), "users", TTL)) as store:
        assert store.read("u499").lists["views"][0].values == 499
        store.merge(changes)
        assert (store.read("u0").fields, store.read("u0").lists) == ({}, {})


def test_a_server_that_does_not_respond_is_waited_for_until_the_time_out(own_server):
    with closing(open_store(own_server.url(options="?timeout=5"), "users", TTL)) as store:
        change = change_of("waiting", Event(store.now_us(), "country", "e", 1))
        own_server.pause()
        try:
            with pytest.raises(SinkUnavailableError):
                store.merge([change])
        finally:
            own_server.resume()
    with closing(open_store(own_server.url(), "users", TTL)) as store:
        store.merge([change])
        assert store.read("waiting") is not None


@pytest.mark.parametrize(
    ("login", "message"),
    [
        ("cassandra:the-wrong-one@", "user and password"),
        ("", "SELECT and MODIFY on the table `headrace_profiles`"),
        ("reader:secret@", "SELECT and MODIFY on the table `headrace_profiles`"),
    ],
)
def test_a_role_that_may_not_write_is_told_what_is_needed(own_server, login, message):
    own_server.query(
        "CREATE ROLE IF NOT EXISTS reader WITH PASSWORD = 'secret' AND LOGIN = true",
        f"GRANT SELECT ON KEYSPACE {KEYSPACE} TO reader",
    )
    url = Secret(f"cassandra://{login}127.0.0.1:{own_server.port}/{KEYSPACE}")
    with (
        closing(open_store(url, "users", TTL)) as store,
        pytest.raises(ProfileStoreAccessError, match=message) as raised,
    ):
        store.merge([change_of("u", Event(store.now_us(), "country", "e", 1))])
    assert not any(word in str(raised.value) for word in ("the-wrong-one", "secret"))


def test_a_server_that_asks_for_tls_and_a_certificate_is_used(own_server, certificates):
    files = (
        f"&ssl_ca_file={certificates}/ca.pem&ssl_certificate_file={certificates}/ca.pem"
        f"&ssl_key_file={certificates}/key.pem"
    )
    clients = "SELECT ssl_enabled FROM system_views.clients"
    with closing(prepared_store(own_server.url(options=f"?ssl=true{files}"))) as store:
        store.merge([change_of("tls", Event(store.now_us(), "country", "e", "PL"))])
        assert store.read("tls").fields["country"].value == "PL"
        assert any(client.ssl_enabled for client in own_server.query(clients))
    assert not any(client.ssl_enabled for client in own_server.query(clients))


def test_a_server_whose_certificate_has_no_known_authority_is_refused(own_server, certificates):
    files = f"&ssl_certificate_file={certificates}/ca.pem&ssl_key_file={certificates}/key.pem"
    with (
        closing(open_store(own_server.url(options=f"?ssl=true{files}"), "users", TTL)) as store,
        pytest.raises(ProfileStoreUnavailableError, match="CERTIFICATE_VERIFY_FAILED"),
    ):
        store.read("tls")


def test_a_file_for_tls_that_is_missing_here_is_named(own_server):
    options = "?ssl=true&ssl_ca_file=/nowhere/ca.pem"
    with (
        closing(open_store(own_server.url(options=options), "users", TTL)) as store,
        pytest.raises(SinkError, match=r"ssl_ca_file=/nowhere/ca\.pem"),
    ):
        store.read("tls")


def test_a_data_centre_that_is_unknown_is_refused_with_those_there_are(cassandra):
    with (
        closing(open_store(cassandra.url(options="?datacenter=east"), "users", TTL)) as store,
        pytest.raises(SinkError, match=r"no data centre .east.*the nodes are in datacenter1"),
    ):
        store.read("u")
    with closing(prepared_store(cassandra.url(options="?datacenter=datacenter1"))) as store:
        assert store.read("u-of-no-row") is None


def test_roles_that_cant_be_read_are_waited_for(own_server):
    role = "CREATE ROLE IF NOT EXISTS late WITH PASSWORD = 'secret' AND LOGIN = true"
    replicas = "ALTER KEYSPACE system_auth WITH replication = {}"
    own_server.query(role, replicas.format("{'class': 'SimpleStrategy', 'replication_factor': 3}"))
    try:
        url = Secret(f"cassandra://late:secret@127.0.0.1:{own_server.port}/{KEYSPACE}")
        with (
            closing(open_store(url, "users", TTL)) as store,
            pytest.raises(ProfileStoreUnavailableError, match="Unable to perform authentication"),
        ):
            store.read("u")
    finally:
        one = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
        own_server.query(replicas.format(one))


@pytest.mark.parametrize("hosts", ["127.0.0.1:1,127.0.0.1:2", "nowhere.invalid:9042"])
def test_nodes_that_do_not_respond_are_named(hosts):
    url = Secret(f"cassandra://u:hunter2@{hosts}/{KEYSPACE}")
    with (
        closing(open_store(url, "users", TTL)) as store,
        pytest.raises(ProfileStoreUnavailableError) as raised,
    ):
        store.read("u")
    assert f"Cassandra {hosts}/{KEYSPACE}" in str(raised.value)
    assert "hunter2" not in str(raised.value)


def test_a_profile_is_shown_by_a_command(tmp_path, cassandra, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    store = uuid.uuid4().hex
    write_project(tmp_path, store, f'"{cassandra.url().reveal()}"')
    with closing(prepared_store(cassandra.url(), store, timedelta(days=1))) as opened:
        opened.merge([change_of("7", Event(opened.now_us(), "item", "", "shoes"))])
    shown = CliRunner().invoke(main, ["profile", "7", "--json", "--project", str(tmp_path)])
    assert json.loads(shown.stdout)["fields"]["item"]["value"] == "shoes"
    missing = CliRunner().invoke(main, ["profile", "8", "--project", str(tmp_path)])
    assert (missing.exit_code, "user '8'" in missing.output) == (1, True)
