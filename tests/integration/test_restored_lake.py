"""A lake is put back from a snapshot with its checkpoints; the folder of the state stays as it is.

What the state knows of the newer run must not decide which events are late, or unmatched.
"""

import shutil
from datetime import timedelta
from pathlib import Path

import pytest
from tests.integration.flow import Flow
from tests.integration.test_join import PARTITIONS, Site

from headrace import BatchLimits, Lake

SMALL = BatchLimits(max_records=100, max_wait=timedelta(milliseconds=100))


@pytest.fixture
def site(broker, spark, tmp_path):
    return Site(Flow(broker, spark, tmp_path, partitions=PARTITIONS), event_id="id")


def put_back(site, snapshot):
    shutil.rmtree(site.flow.lake)
    shutil.copytree(snapshot, site.flow.lake)


def test_events_that_were_in_time_are_in_time_again(site, tmp_path):
    pipeline = site.flow.pipeline(
        "views",
        source=site.impressions,
        sink=Lake("views"),
        late_data=Lake("late_views"),
        allowed_lateness=timedelta(hours=1),
        limits=SMALL,
    )
    site.send(site.impressions, map(site.impression, range(30)))
    site.run(pipeline)
    shutil.copytree(site.flow.lake, tmp_path / "snapshot")
    site.send(site.impressions, map(site.impression, range(30, 300)))
    site.run(pipeline)
    put_back(site, tmp_path / "snapshot")
    site.run(pipeline)
    assert len(site.flow.rows("views")) == 300
    assert not (Path(site.flow.lake) / "late_views").exists()


def test_events_that_had_a_match_have_it_again(site, tmp_path):
    pipeline = site.pipeline(limits=SMALL)
    for part in (range(30), range(30, 450)):
        site.send(site.impressions, map(site.impression, part))
        site.send(site.clicks, [site.click(n) for n in part if n % 3 == 0])
        site.run(pipeline)
        if part.start == 0:
            shutil.copytree(site.flow.lake, tmp_path / "snapshot")
    expected = site.joined()
    assert expected == {f"c{n}": f"i{n}" for n in range(0, 450, 3)}
    put_back(site, tmp_path / "snapshot")
    site.run(pipeline)
    assert site.joined() == expected
