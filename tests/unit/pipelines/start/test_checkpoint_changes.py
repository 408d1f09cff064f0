"""What `plan` says of a pipeline whose checkpoint was begun with other steps."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from headrace import (
    BatchLimits,
    Join,
    Kafka,
    Lake,
    Match,
    Pipeline,
    Source,
    Topic,
    classify,
    count_windows,
    deduplicate,
    fan_out,
    filter_rows,
)
from headrace.pipelines.start.checkpoint import CheckpointFolder, CurrentCheckpoint
from headrace.pipelines.start.checkpoint_changes import checkpoint_changes
from headrace.pipelines.start.query_record import (
    Difference,
    QueryRecord,
    described_transforms,
    difference_of,
    write_query,
)
from headrace.settings.model import Settings

HOUR = timedelta(hours=1)
UNIQUE = deduplicate(["id"], HOUR)
HOURS = count_windows(HOUR, ["page"])


def pipeline(*steps, sink=Lake("views")):  # noqa: B008  a frozen value
    return Pipeline("views-to-lake", Topic("views"), sink, steps=steps)


def step(rows):
    return rows


@pytest.fixture
def begun(tmp_path):
    """``begun(*steps)``: settings of a project whose pipeline has run with these steps."""
    settings = Settings(root=tmp_path, name="p", modules=("flow",), lake=str(tmp_path / "lake"))

    def write(*steps, batches=1):
        folder = CheckpointFolder(settings.lake, "views-to-lake")
        current = CurrentCheckpoint(1, "", begun=True)
        uri = folder.checkpoint(current).uri
        folder.write(current)
        write_query(uri, QueryRecord("4", ["views"], described_transforms(pipeline(*steps)), []))
        for batch in range(batches):
            Path(uri, "offsets").mkdir(parents=True)
            Path(uri, "offsets", str(batch)).write_text("v1")
        return settings

    return write


@pytest.mark.parametrize(
    ("before", "now", "difference"),
    [
        ([UNIQUE], [deduplicate(["page"], HOUR)], ("deduplicate.by", '["id"]', '["page"]')),
        (
            [HOURS],
            [count_windows(2 * HOUR, ["page"])],
            ("count_windows.every", '"1:00:00"', '"2:00:00"'),
        ),
        ([HOURS], [count_windows(HOUR, ["user"])], ("count_windows.by", '["page"]', '["user"]')),
        (
            [HOURS],
            [count_windows(HOUR, ["page"], event_time="at")],
            ("count_windows.event_time", '"event_time"', '"at"'),
        ),
        (
            [UNIQUE],
            [deduplicate(["id"], HOUR, event_time="at")],
            ("deduplicate.event_time", '"event_time"', '"at"'),
        ),
        ([step], [UNIQUE], ("transforms with state", "[]", '["deduplicate"]')),
        ([UNIQUE], [], ("transforms with state", '["deduplicate"]', "[]")),
        (
            [UNIQUE, HOURS],
            [HOURS, UNIQUE],
            (
                "transforms with state",
                '["deduplicate", "count_windows"]',
                '["count_windows", "deduplicate"]',
            ),
        ),
    ],
)
def test_other_state_is_refused_with_both_values(begun, before, now, difference):
    (change,) = checkpoint_changes(begun(*before), [pipeline(*now)])
    assert (change.part, change.recorded, change.declared) == difference
    assert "`headrace checkpoint reset views-to-lake --to table`" in change.remedy


def test_a_sink_without_positions_goes_on_from_committed_offsets(begun):
    sink = Kafka(Topic("copies"))
    (change,) = checkpoint_changes(begun(UNIQUE), [pipeline(sink=sink)])
    assert "--to committed`" in change.remedy


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ([UNIQUE], [step, deduplicate(["id"], 2 * HOUR), step]),
        ([HOURS], [count_windows(HOUR, ["page"], within=2 * HOUR)]),
        ([filter_rows({"large": "n > 1"}), UNIQUE], [filter_rows({"small": "n < 1"}), UNIQUE]),
        ([UNIQUE], [UNIQUE, filter_rows({"small": "n < 1"})]),
        ([classify("kind", {"a": "n > 1"}), UNIQUE], [classify("kind", {"b": "n < 1"}), UNIQUE]),
        ([fan_out("to", {"a": "n > 1"}), UNIQUE], [fan_out("to", {"b": "n < 1"}), UNIQUE]),
    ],
)
def test_what_does_not_change_the_meaning_of_state_is_no_change(begun, before, now):
    assert checkpoint_changes(begun(*before), [pipeline(*now)]) == ()


@pytest.mark.parametrize(
    "change",
    [
        {"source": Source(Topic("views"), watermark=HOUR)},
        {"sink": Lake("views", ("day",))},
        {"limits": BatchLimits(max_records=10)},
    ],
)
def test_another_watermark_limit_or_setting_of_the_sink_is_no_change(begun, change):
    assert checkpoint_changes(begun(UNIQUE), [replace(pipeline(UNIQUE), **change)]) == ()


def test_a_checkpoint_without_batches_has_no_state(begun):
    other = deduplicate(["page"], HOUR)
    assert checkpoint_changes(begun(UNIQUE, batches=0), [pipeline(other)]) == ()


def test_a_pipeline_that_never_ran_has_no_change(tmp_path):
    settings = Settings(root=tmp_path, name="p", modules=("flow",), lake=str(tmp_path / "lake"))
    assert checkpoint_changes(settings, [pipeline(UNIQUE)]) == ()


def joined(later="views", earlier="pages", on=("page", "id"), **changes):
    join = Join(Topic(later), Topic(earlier), on, "of", **{"within": HOUR} | changes)
    return Pipeline("views-to-lake", join, Lake("views"))


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        ({"within": 2 * HOUR}, ("Join.within", '"1:00:00"', '"2:00:00"')),
        ({"match": Match.LAST}, ("Join.match", '"id"', '"last"')),
        ({"on": ("page", "key")}, ("Join.on", '["page", "id"]', '["page", "key"]')),
        ({"later": "clicks"}, ("Join.later", '"views"', '"clicks"')),
        ({"earlier": "sites"}, ("Join.earlier", '"pages"', '"sites"')),
    ],
)
def test_the_state_of_a_join_is_of_its_topics_fields_window_and_match(changes, difference):
    before, now = (described_transforms(joined(**each)) for each in ({}, changes))
    assert difference_of("transforms with state", before, now) == Difference(*difference)


def test_how_long_a_join_waits_may_change():
    before, now = (described_transforms(joined(wait=each)) for each in (HOUR, 2 * HOUR))
    assert difference_of("transforms with state", before, now) is None
