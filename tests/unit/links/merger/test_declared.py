"""What `headrace check` says of mergers."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from headrace import Merger, Topic
from headrace.errors import ProjectError
from headrace.links.merger.kind import KIND
from headrace.links.merger.standing import plan_of
from headrace.project.check import load_project
from headrace.settings import Settings, load_settings

WAW, PAR = Topic("waw.clicks", partitions=4), Topic("par.clicks", partitions=4)
PAR_OF_ANY_TIME = replace(PAR, config={"message.timestamp.after.max.ms": "7200000"})
CLICKS, LATE = Topic("clicks", partitions=4), Topic("clicks.late", partitions=4)


def merger(**changes):
    return Merger(
        **{"name": "clicks", "sources": [WAW, PAR], "target": CLICKS, "late": LATE} | changes
    )


def faults(**changes):
    faults = KIND.own_faults(merger(**changes), Settings(Path(), "p", (), ""))
    return [f"{fault.message}; {fault.remedy}" for fault in faults]


def test_a_merger_of_topics_with_one_partition_count_is_right():
    assert faults() == []
    assert merger().consumer_group == "headrace.merger.clicks"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": 7}, "merger 7: name is 7"),
        ({"name": "a b"}, "'a b' is not a merger name"),
        ({"sources": "waw"}, "sources is 'waw'"),
        ({"sources": [WAW, "par"]}, "sources is"),
        ({"target": "clicks"}, "target is 'clicks'"),
        ({"late": None}, "late is None"),
        ({"sources": [WAW]}, "has 1 sources; at least two topics"),
        ({"target": WAW}, "has topic 'waw.clicks' 2 times"),
        ({"late": CLICKS}, "has topic 'clicks' 2 times"),
        ({"mirrored_elsewhere": [CLICKS]}, "mirrored_elsewhere has 'clicks'"),
        ({"target": Topic("clicks", partitions=3)}, "waw.clicks 4, par.clicks 4, clicks 3"),
        ({"sources": [WAW, Topic("par.clicks", partitions=8)]}, "different partitions"),
        (
            {"sources": [WAW, Topic("par.clicks", partitions=4, compaction=True)]},
            "topic 'par.clicks' is compacted",
        ),
        (
            {"target": Topic("clicks", partitions=4, config={"cleanup.policy": "compact,delete"})},
            "topic 'clicks' is compacted",
        ),
        (
            {"sources": [WAW, Topic("p", partitions=4, config={"max.message.bytes": "5000000"})]},
            "topic 'clicks' takes 1048588 bytes, and a source 5000000",
        ),
        (
            {
                "target": Topic(
                    "clicks", partitions=4, config={"message.timestamp.type": "LogAppendTime"}
                )
            },
            "topic 'clicks' has message.timestamp.type LogAppendTime",
        ),
        (
            {
                "sources": [WAW, PAR_OF_ANY_TIME],
                "target": replace(PAR_OF_ANY_TIME, name="clicks"),
            },
            "topic 'clicks.late' has message.timestamp.after.max.ms 3600000, and a source 7200000",
        ),
        (
            {"sources": [Topic(f"{n:0>200}.clicks", partitions=4) for n in range(20)]},
            "its 20 sources need 4720 bytes of metadata",
        ),
        (
            {"late": Topic("clicks.late", partitions=4, compaction=True)},
            "topic 'clicks.late' is compacted",
        ),
        ({"allowed_lateness": timedelta(seconds=-1)}, "Merger.allowed_lateness is"),
        ({"idle_timeout": timedelta(0)}, "Merger.idle_timeout is"),
        ({"commit_every": timedelta(minutes=1)}, "commit_every is 0:01:00; at most 0:00:05"),
    ],
)
def test_what_would_go_wrong_is_a_fault(changes, message):
    assert any(message in fault for fault in faults(**changes))


PROJECT = """
from headrace import Merger, Mirror, Topic

waw = Topic("waw.clicks", partitions=2)
par = Topic("par.clicks", partitions=2)
clicks = Topic("clicks", partitions=2)
late = Topic("clicks.late", partitions=2)
mirror = Mirror("waw", source="waw", topics={"clicks": waw})
merger = Merger("merge", [waw, par], clicks, late, mirrored_elsewhere=MIRRORED)
"""


@pytest.mark.parametrize(
    ("elsewhere", "expected"), [("[]", ["mirror", "wall"]), ("[par]", ["mirror", "records"])]
)
def test_a_source_is_as_far_as_its_mirror_the_clock_or_its_records_say(
    tmp_path, elsewhere, expected
):
    head = '[project]\nname = "a"\nmodules = ["flow"]\n[kafka]\nbootstrap_servers = "h:1"\n'
    (tmp_path / "headrace.toml").write_text(f'{head}[sites.waw.kafka]\nbootstrap_servers = "w:1"\n')
    (tmp_path / "flow.py").write_text(PROJECT.replace("MIRRORED", elsewhere))
    project = load_project(load_settings(tmp_path, {}))
    plan = plan_of(project, project.declared(Merger)["merge"])
    assert [source.value for source in plan.sources.values()] == expected
    assert (plan.allowed_lateness_ms, plan.idle_seconds) == (1_000, 300.0)


@pytest.mark.parametrize(
    "other",
    [
        'Merger("again", [par, waw], clicks, par2)',
        'Mirror("par", source="waw", topics={"x": clicks})',
        'Pipeline("copy", par2, Kafka(clicks))',
    ],
)
def test_a_target_is_written_by_its_merger_alone(tmp_path, other):
    head = '[project]\nname = "a"\nmodules = ["flow"]\n[kafka]\nbootstrap_servers = "h:1"\n'
    (tmp_path / "headrace.toml").write_text(f'{head}[sites.waw.kafka]\nbootstrap_servers = "w:1"\n')
    body = PROJECT.replace("MIRRORED", "[]").replace("Topic\n", "Kafka, Pipeline, Topic\n", 1)
    more = f'par2 = Topic("par2", event=None, partitions=2)\nother = {other}\n'
    (tmp_path / "flow.py").write_text(body + more)
    with pytest.raises(ProjectError, match="writes to 'clicks', the target of 'merge'"):
        load_project(load_settings(tmp_path, {}))
