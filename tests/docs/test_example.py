"""The example project: its declarations check, and its replay derives the same events each time."""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from headrace.control import LoadedProject, load_project
from headrace.control.event_producer import event_text
from headrace.model import event_schema
from headrace.pipelines.source.decode import decoder_for
from headrace.settings import load_settings


@pytest.fixture
def folder(root: Path) -> Path:
    """The example's folder."""
    return root / "examples" / "ad_serving"


@pytest.fixture
def project(folder: Path, monkeypatch: pytest.MonkeyPatch) -> LoadedProject:
    """The example, loaded and checked."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    return load_project(load_settings(folder, {}))


@pytest.fixture
def replay(project: LoadedProject) -> Iterator[ModuleType]:
    """Its module ``replay``, which is importable once the project is loaded."""
    yield importlib.import_module("replay")
    for name in ("replay", "flow"):
        sys.modules.pop(name, None)


def test_impressions_take_the_fused_path_and_clicks_go_through_spark(
    project: LoadedProject,
) -> None:
    paths = {name: pipeline.path.kind for name, pipeline in project.pipelines.items()}
    assert paths == {"impressions-to-lake": "fused", "clicks-to-lake": "spark"}


def test_impressions_and_clicks_of_a_user_have_the_same_partition(project: LoadedProject) -> None:
    keys = {(topic.key, topic.partitions) for topic in project.topics.values()}
    assert len(keys) == 1


def test_a_week_is_60000_impressions_and_287_clicks_with_ids_of_their_own(
    replay: ModuleType,
) -> None:
    sent = [
        (topic.name, event.event_id) for row in replay.rows() for topic, event in replay.events(row)
    ]
    assert Counter(topic for topic, _ in sent) == {"impressions": 60_000, "clicks": 287}
    assert len({event_id for _, event_id in sent}) == len(sent)


def test_a_second_replay_sends_the_same_events(replay: ModuleType) -> None:
    row = next(replay.rows())
    assert list(replay.events(row)) == list(replay.events(row))


def test_every_kind_of_event_is_read_as_it_was_sent(replay: ModuleType) -> None:
    clicked = next(row for row in replay.rows() if row["click"] == "1")
    for topic, event in replay.events(clicked):
        decoder = decoder_for(topic.record_format, event_schema(type(event)))
        decoded = decoder.decode([event_text(topic, event)])
        assert decoded.rows.to_pylist() == [vars(event)]
        assert not decoded.rejected
        assert event.user == getattr(event, topic.key)


def test_the_attribution_names_licence_and_publisher(folder: Path) -> None:
    text = (folder / "data" / "ATTRIBUTION.md").read_text(encoding="utf-8")
    assert "CC BY 4.0" in text
    assert "ZOZO" in text
