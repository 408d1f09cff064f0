from datetime import UTC, datetime, timedelta

import pytest

from headrace.sinks.lake.files.partitions import Partition, TimeKey, partition_text, timestamp_text
from headrace.sinks.lake.layout import TimeUnit

DAY_AND_HOUR = TimeKey((TimeUnit.DAY, TimeUnit.HOUR))


def us(*when: int) -> int:
    return (datetime(*when, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(
        microseconds=1
    )


def test_a_folder_lists_the_columns_outermost_first():
    partition = Partition((("day", "2019-11-24"), ("hour", "7"), ("campaign", "all")))
    assert partition.folder == "day=2019-11-24/hour=7/campaign=all"


def test_a_table_without_partitions_has_no_folders():
    assert Partition(()).folder == ""


@pytest.mark.parametrize(
    ("text", "folder"),
    [
        (None, "c=__HIVE_DEFAULT_PARTITION__"),
        ("50%", "c=50%25"),
        ("a=b;c:d", "c=a%3Db%3Bc%3Ad"),
        ("żółć 😀", "c=żółć 😀"),
    ],
)
def test_characters_that_paths_give_a_meaning_are_escaped(text, folder):
    assert Partition((("c", text),)).folder == folder


def test_a_value_that_grows_too_long_by_escaping_keeps_a_name_of_its_own():
    folders = {Partition((("c", "%" * 99 + end),)).folder for end in "ab"}
    assert len(folders) == 2
    assert all(len(folder.encode()) <= 255 for folder in folders)


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, None), ("", None), ("x", "x"), (True, "true"), (False, "false"), (-5, "-5"), (0, "0")],
)
def test_values_have_the_text_of_delta(value, text):
    assert partition_text(value) == text


def test_hours_before_1970_belong_to_their_own_day():
    key = us(1969, 12, 31, 23, 59) // DAY_AND_HOUR.grain_us
    assert DAY_AND_HOUR.texts(key) == {"day": "1969-12-31", "hour": "23"}


def test_rows_without_event_time_have_null_partitions():
    assert DAY_AND_HOUR.texts(None) == {"day": None, "hour": None}


@pytest.mark.parametrize(
    ("units", "end"),
    [
        ((TimeUnit.DAY, TimeUnit.HOUR), us(2019, 11, 24, 8)),
        ((TimeUnit.DAY,), us(2019, 11, 25)),
        ((TimeUnit.HOUR,), us(2019, 11, 24, 8)),
        ((), us(2019, 11, 24, 7, 30) + 1),
    ],
)
def test_a_partition_is_over_when_its_finest_unit_is(units, end):
    assert TimeKey(units).end_us(us(2019, 11, 24, 7, 30)) == end


def test_statistics_keep_microseconds():
    assert timestamp_text(us(2019, 11, 24, 7) + 3) == "2019-11-24T07:00:00.000003Z"
