"""What an instance of a dispatcher tells others, in JSON and for Prometheus."""

from __future__ import annotations

import json

from headrace.dispatcher.status import DispatcherStatus, RouteState, RouteStatus
from headrace.transfer.prometheus import exposition
from headrace.transfer.status import TransferStatusFolder

WAW = RouteStatus(
    "waw",
    RouteState.RUNNING,
    read=100,
    records=60,
    restarts=1,
    committed_ms=1_000,
    lags={"clicks/0": 3, "clicks/1": 4},
)
PAR = RouteStatus("par", RouteState.WAITING, "site par is away", refused={"clicks/1": "a gap"})
STATUS = DispatcherStatus.of("d", {"waw": WAW, "par": PAR})


def test_counts_are_those_of_all_targets():
    assert (STATUS.records, STATUS.read, STATUS.restarts) == (60, 100, 1)
    assert (STATUS.lag_records, STATUS.refused_partitions, STATUS.waiting_sites) == (7, 1, 1)
    assert STATUS.lags == {"waw/clicks/0": 3, "waw/clicks/1": 4}
    assert STATUS.refused == {"par/clicks/1": "a gap"}


def test_every_figure_is_a_metric():
    labels = f'dispatcher="d",instance="{STATUS.instance}"'
    place = f'{labels},topic="clicks",partition="1"'
    lines = exposition(STATUS).splitlines()
    for line in (
        f"headrace_dispatcher_records_total{{{labels}}} 60",
        f"headrace_dispatcher_waiting_sites{{{labels}}} 1",
        f'headrace_dispatcher_site_records_total{{{labels},site="waw"}} 60',
        f'headrace_dispatcher_site_waiting{{{labels},site="par"}} 1',
        f'headrace_dispatcher_partition_lag_records{{{place},site="waw"}} 4',
        f'headrace_dispatcher_partition_refused{{{place},site="par"}} 1',
        f'headrace_dispatcher_state{{{labels},state="running"}} 1',
    ):
        assert line in lines


def test_a_target_that_was_never_committed_has_no_age():
    name = "headrace_dispatcher_site_commit_age_seconds"
    [age] = [line for line in exposition(STATUS).splitlines() if line.startswith(name)]
    assert 'site="waw"' in age


def test_a_status_is_read_as_it_was_written(tmp_path):
    folder = TransferStatusFolder(tmp_path, DispatcherStatus)
    written = DispatcherStatus.of("d", {"waw": WAW, "par": PAR})
    folder.write(written)
    [status] = folder.read()
    assert status.to_json() == json.loads(json.dumps(written.to_json()))
    assert status.sites == {"waw": WAW, "par": PAR}
