import json
import tempfile
from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.contracts.delta_lake import DeltaLake
from tests.contracts.sink import add, row

CAMPAIGNS = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=120)
TIMES = st.integers(-(10**9), 4 * 10**9).map(
    lambda seconds: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds, microseconds=7)
)


@settings(max_examples=25)
@given(st.lists(st.tuples(CAMPAIGNS, TIMES), min_size=1, max_size=12))
def test_whatever_the_values_are_every_row_is_there_once_also_after_compaction(given_rows):
    rows = [row(number, campaign, at) for number, (campaign, at) in enumerate(given_rows)]
    with tempfile.TemporaryDirectory() as folder:
        lake = DeltaLake(f"{folder}/lake")
        table = lake.open()
        add(table, lake.write(rows))
        assert originals(lake) == [{**one, "campaign": one["campaign"] or None} for one in rows]
        again = [{**one, "id": one["id"] + len(rows)} for one in rows]
        add(table, lake.write(again), version=1)
        twice = originals(lake)
        table.compact(2, timedelta(0))
        assert originals(lake) == twice
        assert len(twice) == 2 * len(rows)


def originals(lake):
    return sorted((original(found) for found in lake.rows()), key=lambda found: found["id"])


def original(found):
    assert (found["day"], found["hour"]) == (found["at"].date(), found["at"].hour)
    campaign = found["campaign"]
    if found["_rescued"] is not None:
        assert campaign == "__unsafe__"
        campaign = json.loads(found["_rescued"])["campaign"]
    return {**row(found["id"], campaign, found["at"]), "clicked": found["clicked"]}
