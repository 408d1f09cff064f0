"""A tombstone that compaction may have removed before it was read is not missed in silence."""

import time
from dataclasses import replace

import pytest
from tests.contracts.source import changed, drained, event, spec

from headrace.errors import DeletesExpiredError
from headrace.pipelines.source.offsets import NOTHING_READ
from headrace.pipelines.source.planning.planner import Planner
from headrace.testing.memory import MemoryCluster

NOW_MS = int(time.time() * 1000)
DAY_MS = 86_400_000


class Site:
    """A topic, and a pipeline that deletes what tombstones name."""

    def __init__(self, folder):
        self.cluster = MemoryCluster()
        self.cluster.create("numbers", 1)
        self.cluster.compact("numbers", DAY_MS)
        self.spec = spec(self.cluster, "numbers", folder, null_key="name")

    def send(self, *ages_ms):
        for age_ms in ages_ms:
            self.cluster.append("numbers", 0, event(1), b"1", timestamp_ms=NOW_MS - age_ms)

    def first_batch(self):
        return drained(Planner(self.spec), Planner(self.spec).initial_offset())

    def next_batch(self, start, **changes):
        return drained(Planner(changed(self.spec, **changes)), start)


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path)


def standing_since(offset, age_ms):
    return replace(offset, caught_up_ms=NOW_MS - age_ms)


@pytest.mark.parametrize("since", [0, 2 * DAY_MS])
def test_a_pipeline_that_stood_still_for_longer_than_tombstones_are_kept_is_refused(site, since):
    site.send(3 * DAY_MS)
    start = replace(site.first_batch(), caught_up_ms=NOW_MS - since if since else 0)
    site.send(DAY_MS + 3_600_000)
    with pytest.raises(DeletesExpiredError, match="accept-loss") as raised:
        site.next_batch(start)
    assert (raised.value.checkpoint_offset, raised.value.delete_retention_ms) == (1, DAY_MS)
    site.next_batch(replace(start, caught_up_ms=NOTHING_READ))
    site.next_batch(start, null_key=None)


def test_records_that_compaction_has_removed_are_looked_for_by_the_next_one(site):
    site.send(3 * DAY_MS)
    start = standing_since(site.first_batch(), 2 * DAY_MS)
    site.cluster.skip("numbers", 0)
    site.send(1_000)
    with pytest.raises(DeletesExpiredError):
        site.next_batch(start)


@pytest.mark.parametrize("ages", [(), (3_600_000,), (3_600_000, 1_000)])
def test_what_came_within_the_time_is_read_however_old_the_last_batch_is(site, ages):
    """As in a topic that had no records for long."""
    site.send(3 * DAY_MS)
    start = standing_since(site.first_batch(), 3 * DAY_MS)
    site.send(*ages)
    assert site.next_batch(start).partitions == {0: 1 + len(ages)}


def test_a_topic_that_is_not_compacted_keeps_its_tombstones(site):
    site.cluster.compact("numbers", None)
    site.send(3 * DAY_MS)
    start = standing_since(site.first_batch(), 2 * DAY_MS)
    site.send(2 * DAY_MS)
    assert site.next_batch(start).partitions == {0: 2}


def test_the_first_read_of_a_topic_has_the_time_of_one_from_its_first_batch_on(site):
    site.send(*[3 * DAY_MS] * 10)
    limits = replace(site.spec.planning.limits, max_records=4)
    planner = Planner(changed(site.spec, limits=limits))
    first = drained(planner, planner.initial_offset())
    second = drained(planner, first)
    assert first.partitions == {0: 4}
    assert second.caught_up_ms == first.caught_up_ms >= NOW_MS
    third = drained(planner, second)
    assert third.partitions == {0: 10}
    assert third.caught_up_ms > 0
    with pytest.raises(DeletesExpiredError):
        site.next_batch(standing_since(second, 2 * DAY_MS))


def test_where_no_tombstone_deletes_no_time_is_kept(site):
    site.send(1_000)
    site.spec = changed(site.spec, null_key=None)
    assert site.first_batch().caught_up_ms == 0
