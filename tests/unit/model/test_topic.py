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
