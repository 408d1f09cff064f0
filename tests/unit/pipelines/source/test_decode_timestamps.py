import json
from datetime import UTC, datetime, timedelta, timezone

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.events import rejection
from headrace.model import event_schema
from headrace.pipelines.source.decode import timestamps as module
from headrace.pipelines.source.decode.timestamps import timestamps

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LATER = datetime(2019, 11, 24, 0, 0, 17, 4101, tzinfo=UTC)
CHECKS = settings(max_examples=200)

ACCEPTED = {
    "2019-11-24T00:00:17.004101Z": LATER,
    "2019-11-24T00:00:17.004101+00:00": LATER,
    "2019-11-24 00:00:17.004101+00:00": LATER,
    "2019-11-24 00:00:17.004101Z": LATER,
    "2019-11-24t00:00:17.004101z": LATER,
    "2019-11-24T02:00:17.004101+02:00": LATER,
    "2019-11-24T02:00:17.004101+0200": LATER,
    "2019-11-23T14:30:17.004101-09:30": LATER,
    "2019-11-24T00:00:17.004101-00:00": LATER,
    "2019-11-24T00:00:17.0041019Z": LATER,
    "2019-11-24T00:00:17.004101999Z": LATER,
    "2019-11-24T00:00:17.004101999+00:00": LATER,
    "2019-11-24T00:00:17.004101999999Z": LATER,
    "2019-11-24T00:00:17Z": LATER.replace(microsecond=0),
    "2019-11-24T00:00:17.1Z": LATER.replace(microsecond=100_000),
    "2019-11-24T00:00:17.123Z": LATER.replace(microsecond=123_000),
    "1969-12-31T23:59:59.999999999Z": EPOCH - timedelta(microseconds=1),
    "1900-01-01T00:00:00.0000001Z": datetime(1900, 1, 1, tzinfo=UTC),
    "1600-01-01T00:00:00.123456789Z": datetime(1600, 1, 1, 0, 0, 0, 123456, tzinfo=UTC),
    "0001-01-01T00:00:00Z": datetime(1, 1, 1, tzinfo=UTC),
    "9999-12-31T23:59:59.999999Z": datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    "2020-02-29T23:59:59+23:59": datetime(2020, 2, 29, 0, 0, 59, tzinfo=UTC),
}
UNREADABLE = {
    **dict.fromkeys(
        [
            "",
            "now",
            "1574553617004",
            "2019-11-24",
            "2019-11-24Z",
            "2019-11-24T00:00:17",
            "2019-11-24 00:00:17.004101",
            "2019-11-24T00Z",
            "2019-11-24T00:00Z",
            "2019-11-24T00:00+00:00",
            "2019-11-24T00:00:17+00",
            "2019-11-24T00:00:17.004101+00",
            "2019-11-24T00:00:17+000",
            "2019-11-24T00:00:17+24:00",
            "2019-11-24T00:00:17+00:60",
            "2019-11-24T00:00:17.Z",
            "2019-11-24T00:00:17,5Z",
            "2019-11-24T00:00:17 Z",
            " 2019-11-24T00:00:17Z",
            "2019-11-24T00:00:17Z ",
            "2019-11-24T00:00:17Z\n",
            "2019-11-24T00:00:17ZZ",
            "2019-11-24\t00:00:17Z",
            "2019-11-24_00:00:17Z",
            "2019-11-24T00:00:60Z",
            "2019-11-24T23:59:60Z",
            "2019-11-24T24:00:00Z",
            "2019-02-30T00:00:17Z",
            "2019-13-01T00:00:17Z",
            "2019-00-01T00:00:17Z",
            "20191124T000017Z",
            "2019-W47-7T00:00:17Z",
            "24/11/2019 00:00:17Z",
            "0000-01-01T00:00:00Z",
            "-001-01-01T00:00:00Z",
            "10000-01-01T00:00:00Z",
            "٢٠١٩-11-24T00:00:17Z",
            "2019-11-24T00:00:17\u221202:00",
        ],
        "wrong-type",
    ),
    "0001-01-01T00:00:00+10:00": "out-of-range",
    "9999-12-31T23:59:59-10:00": "out-of-range",
}


def read(texts):
    array, unreadable = timestamps(texts)
    assert array.type == pa.timestamp("us", tz="UTC")
    return array.to_pylist(), unreadable


def reason(text):
    class Timed:
        at: datetime

    return rejection(json.dumps({"at": text}).encode(), event_schema(Timed))[0]


@pytest.mark.parametrize(("text", "time"), ACCEPTED.items())
def test_an_rfc_3339_time_is_read(text, time):
    assert read([text]) == ([time], [])
    assert read([text, "never"]) == ([time, None], [1])


@pytest.mark.parametrize(("text", "code"), UNREADABLE.items())
def test_any_other_text_is_rejected(text, code):
    assert read([text]) == ([None], [0])
    assert reason(text) == code


def test_unreadable_texts_are_found_by_row_among_thousands():
    texts = ["2019-11-24T00:00:17.004101Z"] * 4000
    unreadable = {0: "x", 250: "0001-01-01T00:00:00+10:00", 1777: "x", 3999: "x"}
    for row, text in unreadable.items():
        texts[row] = text
    times, rows = read(texts)
    assert rows == list(unreadable)
    assert times == [None if row in unreadable else LATER for row in range(4000)]


def test_nulls_stay_null_and_are_readable():
    assert read([]) == ([], [])
    assert read([None, None]) == ([None, None], [])
    for text in ("2019-11-24T00:00:17.004101Z", "2019-11-24T00:00:17.004101999Z"):
        assert read([None, text, None]) == ([None, LATER, None], [])
    assert read([None, "x", None]) == ([None, None, None], [1])


ZONES = st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@CHECKS
@given(st.lists(st.datetimes(timezones=ZONES)), st.sampled_from("T "))
def test_what_python_writes_is_read_back(times, separator):
    array, unreadable = timestamps([time.isoformat(separator) for time in times])
    micros = array.cast(pa.int64()).to_pylist()
    for row, time in enumerate(times):
        since_epoch = (time - EPOCH) // timedelta(microseconds=1)
        in_range = module.EARLIEST_US <= since_epoch <= module.LATEST_US
        assert (row in unreadable) == (not in_range)
        assert micros[row] == (since_epoch if in_range else None)


@st.composite
def odd_texts(draw):
    text = draw(st.sampled_from([*ACCEPTED, *UNREADABLE]))
    start = draw(st.integers(0, len(text)))
    inserted = draw(st.text("0123456789TZtz:.+- ", max_size=2))
    return text[:start] + inserted + text[start + draw(st.integers(0, 2)) :]


@CHECKS
@given(st.lists(st.sampled_from(list(ACCEPTED)) | odd_texts() | st.none(), max_size=6))
def test_the_fast_way_reads_no_text_differently_from_the_slow_way(texts):
    fast = module._all_at_once(texts)
    slow, unreadable = module._text_by_text(texts)
    if fast is not None:
        assert unreadable == []
        assert fast.equals(slow)
    assert timestamps(texts)[0].equals(slow)
    assert timestamps(texts)[1] == unreadable
