"""Which rows of a step with state come behind the watermark."""

from hypothesis import example, given
from hypothesis import strategies as st
from pyarrow import array, timestamp

from headrace.pipelines.late_data.batch_watermark import rows_behind

TIMES_US = st.integers(-(10**16), 10**16)


@example(times=[None, -1], watermark_us=0, zone="UTC")
@given(
    times=st.lists(st.none() | TIMES_US), watermark_us=TIMES_US, zone=st.sampled_from(["UTC", None])
)
def test_a_row_is_behind_if_its_time_is_not_after_the_watermark(times, watermark_us, zone):
    times = [*times, watermark_us, watermark_us + 1]
    found = rows_behind(array(times, timestamp("us", zone)), watermark_us)
    assert found.tolist() == [at is not None and at <= watermark_us for at in times]
