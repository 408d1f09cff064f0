"""The example project: its declarations check, and its replay derives the same events each time."""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from headrace import Pipeline
from headrace.ingest.producing.event_producer import event_text
from headrace.model import event_schema
from headrace.pipelines.source.decode import decoder_for
from headrace.project.check import load_project
from headrace.project.loaded import LoadedProject
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
    for name in ("proof", "replay", "flow"):
        sys.modules.pop(name, None)


def test_what_has_no_steps_takes_the_fused_path(project: LoadedProject) -> None:
    paths = {name: pipeline.path.kind for name, pipeline in project.declared(Pipeline).items()}
    assert paths == {
        "impressions-to-lake": "fused",
        "impressions-to-stats": "spark",
        "clicks-with-impressions": "fused",
        "clicks-to-lake": "spark",
        "clicks-to-stats": "spark",
        "conversions-with-clicks": "fused",
    }


def test_events_of_a_user_have_the_same_partition_in_every_topic(project: LoadedProject) -> None:
    topics = [topic for name, topic in project.topics.items() if name != "campaigns"]
    assert {(topic.key, topic.partitions) for topic in topics} == {("user", 4)}


def test_a_week_is_60000_impressions_and_287_clicks_and_what_is_planted(
    replay: ModuleType,
) -> None:
    first = [each for row in replay.rows() for each in replay.first_sendings(row)]
    sent = Counter(each.topic.name for each in first)
    assert sent == {"impressions": 60_000 + 427, "clicks": 287 + 10, "conversions": 104}
    assert len({each.event.event_id for each in first}) == len(first)


@pytest.mark.usefixtures("replay")
def test_the_readme_has_the_numbers_of_the_raw_file(folder: Path) -> None:
    week = importlib.import_module("proof").Week()
    bought = [click is not None for click in week.last_clicks.values()]
    tables = {
        "impressions": (len(week.impressions), len(week.late)),
        "clicks": (len(week.clicks), len(week.unmatched)),
        "conversions": (bought.count(True), bought.count(False)),
    }
    readme = (folder / "README.md").read_text(encoding="utf-8")
    for topic, (table, beside) in tables.items():
        figures = (week.sent[topic], table, beside, week.duplicates(topic))
        assert f"| {topic} | {' | '.join(f'{figure:,}' for figure in figures)} |" in readme


def test_a_second_replay_sends_the_same_events(replay: ModuleType) -> None:
    row = next(replay.rows())
    assert list(replay.sendings(row)) == list(replay.sendings(row))


def test_every_kind_of_event_is_read_as_it_was_sent(replay: ModuleType) -> None:
    week = (each for row in replay.rows() for each in replay.first_sendings(row))
    for sending in {each.topic.name: each for each in week}.values():
        topic, event = sending.topic, sending.event
        decoder = decoder_for(topic.record_format, event_schema(type(event)))
        decoded = decoder.decode([event_text(topic, event)])
        assert decoded.rows.to_pylist() == [vars(event)]
        assert not decoded.rejected
        assert event.user == getattr(event, topic.key)


def test_the_attribution_names_licence_and_publisher(folder: Path) -> None:
    text = (folder / "data" / "ATTRIBUTION.md").read_text(encoding="utf-8")
    assert "CC BY 4.0" in text
    assert "ZOZO" in text
