"""Times up to which sites are mirrored: whose they are."""

from __future__ import annotations

import pytest

from headrace.links.site_times import NOT_KNOWN_MS, SiteTime, read_site_time, site_time_key
from headrace.model import TopicPartition

COPY = TopicPartition("waw.clicks", 3)


@pytest.mark.parametrize("time", [SiteTime(2_000), SiteTime(2_000, "C/GGy2vIQP2r9cmYVR+7Jg")])
def test_a_time_is_read_as_it_was_written(time):
    assert read_site_time(site_time_key(COPY), time.record_value) == (COPY, time)


@pytest.mark.parametrize("value", [None, b"", b"x", b"1 ", b"1 a b", b"-1 id"])
def test_other_values_are_none_of_ours(value):
    assert read_site_time(site_time_key(COPY), value) is None


def test_the_time_of_a_copy_that_was_deleted_says_nothing_of_the_one_of_its_name():
    assert SiteTime(2_000, "former").of("live") == NOT_KNOWN_MS
    assert SiteTime(2_000, "live").of("live") == 2_000
    assert SiteTime(2_000).of("live") == 2_000  # an earlier release wrote it
