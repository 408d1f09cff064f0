"""What every lake must do: run on memory and on a local Delta table.

A test module subclasses ``SinkContract``, or ``SinkSmoke`` for a Delta table on other storage, and
gives the fixture ``lake``: an empty :class:`Lake`.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from typing import Any, Protocol

import pytest

from headrace.errors import SinkError
from headrace.sinks.api import Transaction

Rows = list[dict[str, Any]]
NOON = datetime(2019, 11, 24, 12, tzinfo=UTC)
AWKWARD = [
    *("all", "50%", "a=b", "a b", " lead", "trail ", "żółć", "日本語", "\u00e9", "e\u0301", "😀"),
    *("it's", '"q"', "a:b", "a*b?", "a#b", "a+b", "a&b", "{x}", "[y]", "^", "~", "a,b;c", "<>"),
    *("%20", "%2F", "a%3Db", "_hidden", ".dot", "...", "null", "None", "true", "2019", "\xa0"),
    *("|", "`", "x" * 100, "%" * 100, "ż" * 50),
]


class Table(Protocol):
    """A driver's hold of the table."""

    def versions(self, app_ids: Iterable[str]) -> Mapping[str, int]: ...
    def commit(self, files: Sequence[Any], transaction: Transaction) -> bool: ...
    def discard(self, files: Sequence[Any]) -> None: ...
    def compact(self, min_files: int, retention: timedelta) -> Any: ...


class Lake(Protocol):
    """A table partitioned by day, hour and campaign; unsafe campaigns are rescued."""

    open: Callable[[], Table]

    def write(self, rows: Rows) -> list[Any]:
        """What one task does: rows ``id``, ``at``, ``campaign``, ``clicked`` to files."""

    def rows(self) -> Rows:
        """What a reader sees."""

    def stored(self) -> int:
        """Data files on storage, committed or not."""


def row(number: int, campaign: str | None = "all", at: datetime = NOON) -> dict[str, Any]:
    return {"id": number, "at": at, "campaign": campaign, "clicked": number % 2 == 0}


def add(table: Table, files: Sequence[Any], app_id: str = "a", version: int = 0) -> bool:
    """Commits what follows version ``version`` - 1 of an application."""
    before = version - 1 if version else None
    return table.commit(files, Transaction({app_id: version}, {app_id: before}))


def ids(lake: Lake) -> list[int]:
    return sorted(found["id"] for found in lake.rows())


class SinkSmoke:
    """What rests on the storage of a lake: paths, commits side by side, compaction."""

    def test_awkward_partition_values_round_trip(self, lake):
        rows = [row(number, campaign) for number, campaign in enumerate(AWKWARD)]
        table = lake.open()
        add(table, lake.write(rows))
        add(table, lake.write(rows), version=1)
        expected = sorted([(n, c) for n, c in enumerate(AWKWARD)] * 2)
        assert sorted((found["id"], found["campaign"]) for found in lake.rows()) == expected
        table.compact(2, timedelta(0))
        assert sorted((found["id"], found["campaign"]) for found in lake.rows()) == expected
        assert lake.stored() == len(AWKWARD)

    def test_two_applications_commit_at_the_same_time(self, lake):
        def run(app_id: str) -> list[bool]:
            table = lake.open()
            files = [lake.write([row(number, app_id)]) for number in range(5)]
            return [add(table, one, app_id, batch) for batch, one in enumerate(files)]

        with ThreadPoolExecutor(3) as pool:
            assert all(all(done) for done in pool.map(run, ["a", "b", "c"]))
        assert ids(lake) == sorted([0, 1, 2, 3, 4] * 3)

    def test_of_two_drivers_with_the_same_batch_one_commits(self, lake):
        add(lake.open(), lake.write([row(0)]))
        drivers = [(lake.open(), lake.write([row(1)])) for _ in range(4)]

        def run(driver: tuple[Table, list[Any]]) -> bool:
            table, files = driver
            return add(table, files, version=1)

        with ThreadPoolExecutor(4) as pool:
            assert sorted(pool.map(run, drivers)) == [False, False, False, True]
        assert ids(lake) == [0, 1]

    def test_a_crash_before_the_commit_leaves_an_orphan_that_compaction_removes(self, lake):
        table = lake.open()
        add(table, lake.write([row(1)]))
        lake.write([row(2)])
        assert (ids(lake), lake.stored()) == ([1], 2)
        lake.open().compact(2, timedelta(0))
        assert (ids(lake), lake.stored()) == ([1], 1)

    def test_compaction_beside_a_writer_loses_nothing(self, lake):
        table = lake.open()
        add(table, lake.write([row(0)]))

        def write() -> None:
            for batch in range(1, 12):
                add(table, lake.write([row(batch)]), version=batch)

        def compact() -> None:
            for _ in range(6):
                lake.open().compact(2, timedelta(days=1))

        with ThreadPoolExecutor(3) as pool:
            for done in [pool.submit(write), pool.submit(compact), pool.submit(compact)]:
                done.result()
        assert ids(lake) == list(range(12))


class SinkContract(SinkSmoke):
    def test_a_committed_batch_is_read_back_with_its_partition_columns(self, lake):
        files = lake.write([row(1), row(2, "men", NOON + timedelta(hours=11))])
        assert add(lake.open(), files)
        assert sorted(lake.rows(), key=lambda found: found["id"]) == [
            {**row(1), "day": date(2019, 11, 24), "hour": 12, "_rescued": None},
            {
                **row(2, "men", NOON + timedelta(hours=11)),
                "day": date(2019, 11, 24),
                "hour": 23,
                "_rescued": None,
            },
        ]

    def test_rows_of_one_partition_make_one_file_a_task(self, lake):
        files = lake.write([row(1), row(2, "men"), row(3), row(4, "men")])
        assert sorted(file.rows for file in files) == [2, 2]

    def test_files_are_invisible_until_their_commit(self, lake):
        table = lake.open()
        add(table, lake.write([row(1)]))
        files = lake.write([row(2)])
        assert ids(lake) == [1]
        add(table, files, version=1)
        assert ids(lake) == [1, 2]

    def test_a_repeated_transaction_adds_nothing(self, lake):
        add(lake.open(), lake.write([row(1)]))
        table = lake.open()
        assert not add(table, lake.write([row(1)]))
        assert ids(lake) == [1]
        assert table.versions(["a"]) == {"a": 0}

    @pytest.mark.parametrize("expected", [None, 0, 7])
    def test_a_transaction_that_expects_something_else_is_an_error(self, lake, expected):
        table = lake.open()
        table.commit(lake.write([row(1)]), Transaction({"a": 3}, {"a": None}))
        files = lake.write([row(2)])
        with pytest.raises(SinkError, match="another driver"):
            table.commit(files, Transaction({"a": 4}, {"a": expected}))
        assert (ids(lake), table.versions(["a"])) == ([1], {"a": 3})

    def test_versions_of_other_applications_are_their_own(self, lake):
        table = lake.open()
        add(table, lake.write([row(1)]))
        add(table, lake.write([row(3)]), version=1)
        assert add(table, lake.write([row(2)]), app_id="b")
        assert table.versions(["a", "b", "c"]) == {"a": 1, "b": 0}

    def test_a_transaction_without_files_records_its_versions(self, lake):
        table = lake.open()
        assert add(table, [])
        assert add(table, [], version=1)
        assert lake.open().versions(["a"]) == {"a": 1}
        assert ids(lake) == []

    def test_a_transaction_records_many_versions_and_a_version_may_fall(self, lake):
        table = lake.open()
        many = {f"app/{number}": 2**40 + number for number in range(200)}
        assert table.commit(lake.write([row(1)]), Transaction(many, {"app/0": None}))
        assert lake.open().versions(many) == many
        assert table.commit([], Transaction({"app/7": 3}, {"app/7": many["app/7"]}))
        assert table.versions(["app/7", "app/8"]) == {"app/7": 3, "app/8": many["app/8"]}

    def test_discarded_files_are_gone_but_committed_ones_stay(self, lake):
        table = lake.open()
        kept, given_up = lake.write([row(1)]), lake.write([row(2)])
        add(table, kept)
        table.discard([*kept, *given_up])
        assert ids(lake) == [1]
        assert lake.stored() == 1

    def test_null_and_empty_are_one_partition_and_read_back_as_null(self, lake):
        files = lake.write([row(1, None), row(2, "")])
        assert len(files) == 1
        add(lake.open(), files)
        assert [found["campaign"] for found in lake.rows()] == [None, None]

    def test_unsafe_values_are_rescued_with_what_they_were(self, lake):
        unsafe = ["../../x", "a\\b", "x" * 101, "new\nline", ".", "..", "__unsafe__"]
        files = lake.write([row(number, campaign) for number, campaign in enumerate(unsafe)])
        assert len(files) == 1
        add(lake.open(), files)
        found = {one["id"]: (one["campaign"], json.loads(one["_rescued"])) for one in lake.rows()}
        assert found == {n: ("__unsafe__", {"campaign": c}) for n, c in enumerate(unsafe)}

    def test_an_orphan_within_the_retention_stays(self, lake):
        table = lake.open()
        add(table, lake.write([row(1)]))
        pending = lake.write([row(2)])
        table.compact(2, timedelta(days=1))
        add(table, pending, version=1)
        assert ids(lake) == [1, 2]

    def test_compaction_keeps_every_row_once_and_the_committed_batches(self, lake):
        table = lake.open()
        for batch in range(4):
            add(table, lake.write([row(batch), row(9, "men")]), version=batch)
        add(table, lake.write([row(5)]), app_id="b")
        lake.open().compact(2, timedelta(0))
        assert ids(lake) == [0, 1, 2, 3, 5, 9, 9, 9, 9]
        assert lake.stored() == 2
        assert table.versions(["a", "b"]) == {"a": 3, "b": 0}
        assert not add(table, lake.write([row(3)]), version=3)

    def test_partitions_with_fewer_files_are_not_compacted(self, lake):
        table = lake.open()
        for batch in range(3):
            add(table, lake.write([row(batch)]), version=batch)
        table.compact(4, timedelta(0))
        assert lake.stored() == 3
