import pytest

from headrace.model import Avro, Raw, Topic


class Account:
    id: str


@pytest.mark.parametrize(
    ("declared", "leaves_out"),
    [
        ({"event": Account, "compaction": True}, True),
        ({"event": Account, "compaction": True, "format": Avro()}, True),
        ({"event": Account, "config": {"cleanup.policy": "compact,delete"}}, True),
        ({"event": Account, "config": {"cleanup.policy": "delete"}}, False),
        ({"event": Account}, False),
        ({"compaction": True}, False),
        ({"compaction": True, "format": Raw()}, False),
    ],
)
def test_tombstones_of_events_are_left_out_where_kafka_compacts(declared, leaves_out):
    assert Topic("accounts", **declared).leaves_out_tombstones is leaves_out


@pytest.mark.parametrize(
    "compacted", [{"compaction": True}, {"config": {"cleanup.policy": "compact"}}]
)
def test_a_compacted_topic_whose_events_hold_no_key_is_written_by_others(compacted):
    assert Topic("accounts", event=Account, **compacted).is_keyed_elsewhere
    assert not Topic("accounts", event=Account, key="id", **compacted).is_keyed_elsewhere
