"""Which subpartition a record is in."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.workers import KeyHash, WorkerRecord


@given(st.binary(), st.integers(1, 1_000), st.lists(st.integers(0, 2**40), min_size=2, max_size=5))
def test_records_of_a_key_share_a_subpartition_however_many_there_are(key, count, offsets):
    records = [WorkerRecord("t", 0, offset, key, b"%d" % offset) for offset in offsets]
    [subpartition] = {KeyHash(count).subpartition(record) for record in records}
    assert 0 <= subpartition < count
