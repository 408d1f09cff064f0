"""The numbers of docs/guarantees.md are those of the code: other tests patch them."""

from __future__ import annotations

import pytest
from tests.docs.guarantee_map import PAGE

from headrace.kafka.dead_letters.replay import MAX_REPLAYS
from headrace.kafka.group.group_member import SESSION_SECONDS
from headrace.kafka.group.subscription import Membership
from headrace.kafka.read.range_reader import SILENCE_LIMIT_SECONDS
from headrace.links.dispatcher.routes import route_run
from headrace.links.timing import LinkTiming
from headrace.pipelines.source.planning.position_check import TRUNCATION_GRACE_SECONDS
from headrace.pipelines.source.reading.bad_records import MAX_BATCH_BYTES, MAX_BYTES

WORDS = {3: "three", 10: "ten", 60: "a minute"}
MIB = 2**20


@pytest.mark.parametrize(
    ("start", "promise"),
    [
        ("the range. An earlier end", f"no record comes for {SILENCE_LIMIT_SECONDS:.0f} seconds"),
        ("- **Late dead letters**", f"{MAX_BYTES // MIB} MiB in one range of a batch"),
        ("- **Late dead letters**", f"its share of {MAX_BATCH_BYTES // MIB} MiB"),
        ("| `dead-letters replay`", f"has come back {WORDS[MAX_REPLAYS]} times is not replayed"),
        ("| `TOPIC_TRUNCATED`", f"for more than {WORDS[TRUNCATION_GRACE_SECONDS]}"),
        ("| `REPLAY_RUNNING`", f"{Membership('g', ()).session_seconds:.0f} seconds more"),
        ("| `WORKER_RUNNING`", f"{Membership('g', ()).session_seconds:.0f} seconds more"),
        ("| `MIRROR_RUNNING`", f"{WORDS[SESSION_SECONDS]} seconds more"),
        ("| `MERGER_RUNNING`", f"{WORDS[SESSION_SECONDS]} seconds more"),
        ("| `MIRROR_TOPIC_MISSING`", f"every {LinkTiming().check_seconds:.0f} seconds"),
        ("| `MIRROR_NO_LEADER`", f"every {LinkTiming().check_seconds:.0f} seconds"),
        ("| `MERGER_NO_PARTITION`", f"every {LinkTiming().check_seconds:.0f} seconds"),
        ("| `MERGER_NO_LEADER`", f"every {LinkTiming().check_seconds:.0f} seconds"),
        ("| `DISPATCHER_NO_PARTITION`", f"every {route_run.LOOK_AGAIN_SECONDS:.0f} seconds"),
        ("| `DISPATCHER_NO_LEADER`", f"every {route_run.LOOK_AGAIN_SECONDS:.0f} seconds"),
        ("| `DISPATCHER_RECORD`", f"after {LinkTiming().check_seconds:.0f} seconds"),
        ("| `DISPATCHER_RECORD`", f"at most {LinkTiming().max_retry_seconds / 60:.0f} minutes"),
    ],
)
def test_a_number_that_is_promised_is_that_of_the_code(start: str, promise: str) -> None:
    [line] = [line for line in PAGE.read_text().splitlines() if line.startswith(start)]
    assert promise in line
