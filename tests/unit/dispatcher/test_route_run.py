"""A target of a dispatcher in real-time mode has a core for each of its partitions."""

from types import SimpleNamespace

import pytest

from headrace.dispatcher import route_run
from headrace.dispatcher.declaration import DispatchMode
from headrace.dispatcher.route import Route
from headrace.dispatcher.route_run import RouteRun
from headrace.errors import DispatcherCoresError
from headrace.model import TopicPartition
from headrace.settings.model import RestartSettings
from headrace.transfer.committed_position import CommittedPosition
from headrace.transfer.instance import Starts


class Started(Exception):  # noqa: N818 - what it stands for is no error
    """It has come to the commit of its positions."""


POSITIONS = {TopicPartition("clicks", number): CommittedPosition(0) for number in range(3)}


@pytest.mark.parametrize(
    ("mode", "cores", "once", "starts"),
    [
        (DispatchMode.REAL_TIME, 2, False, False),
        (DispatchMode.REAL_TIME, 3, False, True),
        (DispatchMode.REAL_TIME, 2, True, True),
        (DispatchMode.MICRO_BATCH, 2, False, True),
    ],
)
def test_a_target_does_not_start_where_partitions_would_wait_for_a_core(
    monkeypatch, tmp_path, mode, cores, once, starts
):
    monkeypatch.setattr(route_run, "find_starts", lambda _: Starts(POSITIONS, {}, frozenset()))
    monkeypatch.setattr(route_run, "live_topic", lambda *_: SimpleNamespace(topic_id="id"))

    def commit(*_):
        raise Started

    monkeypatch.setattr(route_run, "commit_positions", commit)
    monkeypatch.setattr(route_run, "latest_offsets", lambda *_: {})
    route = Route("d", "g", "central", "waw", {}, {}, "clicks", "events", mode=mode)
    run = RouteRun(None, route, RestartSettings(), tmp_path / "d", lambda: cores, once=once)
    with pytest.raises(Started if starts else DispatcherCoresError):
        run._run_query()
