"""What every lake must do: run on memory, on a local Delta table and on HDFS.

A test module subclasses ``SinkContract`` and gives the fixture ``lake``: an empty :class:`Lake`.
"""

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from typing import Any, Protocol

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

    def committed_batch(self, app_id: str) -> int | None: ...
    def commit(self, files: Sequence[Any], *, app_id: str, batch_id: int) -> bool: ...
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


def ids(lake: Lake) -> list[int]:
    return sorted(found["id"] for found in lake.rows())


class SinkContract:
    def test_a_committed_batch_is_read_back_with_its_partition_columns(self, lake):
        files = lake.write([row(1), row(2, "men", NOON + timedelta(hours=11))])
        assert lake.open().commit(files, app_id="a", batch_id=0)
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
        table.commit(lake.write([row(1)]), app_id="a", batch_id=0)
        files = lake.write([row(2)])
        assert ids(lake) == [1]
        table.commit(files, app_id="a", batch_id=1)
        assert ids(lake) == [1, 2]

    def test_a_replayed_batch_adds_nothing(self, lake):
        lake.open().commit(lake.write([row(1)]), app_id="a", batch_id=3)
        table = lake.open()
        assert not table.commit(lake.write([row(1)]), app_id="a", batch_id=3)
        assert ids(lake) == [1]
        assert table.committed_batch("a") == 3

    def test_an_older_batch_adds_nothing(self, lake):
        table = lake.open()
        table.commit(lake.write([row(1)]), app_id="a", batch_id=3)
        assert not table.commit(lake.write([row(2)]), app_id="a", batch_id=2)
        assert ids(lake) == [1]

    def test_batches_of_other_applications_are_their_own(self, lake):
        table = lake.open()
        table.commit(lake.write([row(1)]), app_id="a", batch_id=7)
        assert table.commit(lake.write([row(2)]), app_id="b", batch_id=0)
        assert (table.committed_batch("a"), table.committed_batch("b")) == (7, 0)
        assert table.committed_batch("c") is None

    def test_an_empty_batch_commits_nothing(self, lake):
        table = lake.open()
        assert table.commit([], app_id="a", batch_id=0)
        assert table.committed_batch("a") is None

    def test_discarded_files_are_gone_but_committed_ones_stay(self, lake):
        table = lake.open()
        kept, given_up = lake.write([row(1)]), lake.write([row(2)])
        table.commit(kept, app_id="a", batch_id=0)
        table.discard([*kept, *given_up])
        assert ids(lake) == [1]
        assert lake.stored() == 1

    def test_awkward_partition_values_round_trip(self, lake):
        rows = [row(number, campaign) for number, campaign in enumerate(AWKWARD)]
        table = lake.open()
        table.commit(lake.write(rows), app_id="a", batch_id=0)
        table.commit(lake.write(rows), app_id="a", batch_id=1)
        expected = sorted([(n, c) for n, c in enumerate(AWKWARD)] * 2)
        assert sorted((found["id"], found["campaign"]) for found in lake.rows()) == expected
        table.compact(2, timedelta(0))
        assert sorted((found["id"], found["campaign"]) for found in lake.rows()) == expected
        assert lake.stored() == len(AWKWARD)

    def test_null_and_empty_are_one_partition_and_read_back_as_null(self, lake):
        files = lake.write([row(1, None), row(2, "")])
        assert len(files) == 1
        lake.open().commit(files, app_id="a", batch_id=0)
        assert [found["campaign"] for found in lake.rows()] == [None, None]

    def test_unsafe_values_are_rescued_with_what_they_were(self, lake):
        unsafe = ["../../x", "a\\b", "x" * 101, "new\nline", ".", "..", "__unsafe__"]
        files = lake.write([row(number, campaign) for number, campaign in enumerate(unsafe)])
        assert len(files) == 1
        lake.open().commit(files, app_id="a", batch_id=0)
        found = {one["id"]: (one["campaign"], json.loads(one["_rescued"])) for one in lake.rows()}
        assert found == {n: ("__unsafe__", {"campaign": c}) for n, c in enumerate(unsafe)}

    def test_two_applications_commit_at_the_same_time(self, lake):
        def run(app_id: str) -> list[bool]:
            table = lake.open()
            files = [lake.write([row(number, app_id)]) for number in range(5)]
            return [
                table.commit(one, app_id=app_id, batch_id=batch) for batch, one in enumerate(files)
            ]

        with ThreadPoolExecutor(3) as pool:
            assert all(all(done) for done in pool.map(run, ["a", "b", "c"]))
        assert ids(lake) == sorted([0, 1, 2, 3, 4] * 3)

    def test_of_two_drivers_with_the_same_batch_one_commits(self, lake):
        lake.open().commit(lake.write([row(0)]), app_id="a", batch_id=0)
        drivers = [(lake.open(), lake.write([row(1)])) for _ in range(4)]

        def run(driver: tuple[Table, list[Any]]) -> bool:
            table, files = driver
            return table.commit(files, app_id="a", batch_id=1)

        with ThreadPoolExecutor(4) as pool:
            assert sorted(pool.map(run, drivers)) == [False, False, False, True]
        assert ids(lake) == [0, 1]

    def test_a_crash_before_the_commit_leaves_an_orphan_that_compaction_removes(self, lake):
        table = lake.open()
        table.commit(lake.write([row(1)]), app_id="a", batch_id=0)
        lake.write([row(2)])
        assert (ids(lake), lake.stored()) == ([1], 2)
        lake.open().compact(2, timedelta(0))
        assert (ids(lake), lake.stored()) == ([1], 1)

    def test_an_orphan_within_the_retention_stays(self, lake):
        table = lake.open()
        table.commit(lake.write([row(1)]), app_id="a", batch_id=0)
        pending = lake.write([row(2)])
        table.compact(2, timedelta(days=1))
        table.commit(pending, app_id="a", batch_id=1)
        assert ids(lake) == [1, 2]

    def test_compaction_keeps_every_row_once_and_the_committed_batches(self, lake):
        table = lake.open()
        for batch in range(4):
            table.commit(lake.write([row(batch), row(9, "men")]), app_id="a", batch_id=batch)
        table.commit(lake.write([row(5)]), app_id="b", batch_id=11)
        lake.open().compact(2, timedelta(0))
        assert ids(lake) == [0, 1, 2, 3, 5, 9, 9, 9, 9]
        assert lake.stored() == 2
        assert (table.committed_batch("a"), table.committed_batch("b")) == (3, 11)
        assert not table.commit(lake.write([row(3)]), app_id="a", batch_id=3)

    def test_partitions_with_fewer_files_are_not_compacted(self, lake):
        table = lake.open()
        for batch in range(3):
            table.commit(lake.write([row(batch)]), app_id="a", batch_id=batch)
        table.compact(4, timedelta(0))
        assert lake.stored() == 3

    def test_compaction_beside_a_writer_loses_nothing(self, lake):
        table = lake.open()
        table.commit(lake.write([row(0)]), app_id="a", batch_id=0)

        def write() -> None:
            for batch in range(1, 12):
                table.commit(lake.write([row(batch)]), app_id="a", batch_id=batch)

        def compact() -> None:
            for _ in range(6):
                lake.open().compact(2, timedelta(days=1))

        with ThreadPoolExecutor(3) as pool:
            for done in [pool.submit(write), pool.submit(compact), pool.submit(compact)]:
                done.result()
        assert ids(lake) == list(range(12))
