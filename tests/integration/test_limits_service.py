"""Two hosts of one service that share their limits in a Redis, and lose it."""

from __future__ import annotations

import re
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime

import httpx
import pytest
from tests.integration.redis_server import RedisServer
from tests.integration.service import NO_AUTHORITIES, Service, bearer, http
from tests.waiting import LIMIT_SECONDS, wait_for

from headrace.settings import Rate

RATE = 40
SECONDS = 2.5


@pytest.fixture
def own_redis(tmp_path, stop_at_end) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path, "hunter2")
    stop_at_end(tmp_path)
    server.start()
    yield server
    server.kill()


@pytest.fixture
def hosts(tmp_path, broker, own_redis) -> Iterator[list[Service]]:
    suffix = f"-{uuid.uuid4().hex[:6]}"
    (tmp_path / "redis-url").write_text(own_redis.url.reveal())
    redis = 'redis = { file = "../redis-url" }'
    with ExitStack() as running:
        found = [Service(tmp_path / name, broker.bootstrap_servers, suffix, redis) for name in "ab"]
        found[0].apply()
        for one in found:
            running.enter_context(one.running())
        yield found


class Sender(threading.Thread):
    """Sends single events to a host, as fast as its answers come.

    It goes on beyond the end while too few are admitted, as on a machine that stalled until then.
    """

    min_admitted = RATE // 4

    def __init__(self, host: Service, token: str, end: float) -> None:
        super().__init__()
        self.host, self.token, self.end = host, token, end
        self.admitted, self.codes = 0, set()

    def run(self) -> None:
        url = f"{self.host.url}/v1/topics/derived{self.host.suffix}/events"
        with httpx.Client(
            verify=NO_AUTHORITIES, headers=bearer(self.token), timeout=LIMIT_SECONDS
        ) as client:
            last = self.end + LIMIT_SECONDS
            while (now := time.monotonic()) < self.end or (
                self.admitted < self.min_admitted and now < last
            ):
                at = datetime.now(UTC).isoformat()
                answer = client.post(url, json={"at": at, "message": uuid.uuid4().hex})
                self.admitted += answer.status_code == 202
                self.codes.add(answer.status_code)
                time.sleep(0.005)


def admitted(hosts: list[Service], token: str) -> tuple[int, float]:
    """So many events over all hosts, in so many seconds."""
    began = time.monotonic()
    senders = [Sender(host, token, began + SECONDS) for host in hosts for _ in range(2)]
    for one in senders:
        one.start()
    for one in senders:
        one.join()
        assert one.codes <= {202, 429}
    return sum(one.admitted for one in senders), time.monotonic() - began


def limited_locally(host: Service, token: str) -> int:
    page = http("GET", f"{host.url}/metrics", headers=bearer(token)).text
    found = re.search(r"^headrace_ingest_limited_locally_total (\d+)$", page, re.MULTILINE)
    assert found
    return int(found[1])


def test_hosts_share_a_limit_and_each_has_its_own_while_redis_is_gone(hosts, own_redis):
    token = hosts[0].token(rate=Rate(events_per_second=RATE))
    hosts[1].wait_known(token)
    until_shared(hosts, token)
    before = sum(limited_locally(one, token) for one in hosts)
    shared, seconds = admitted(hosts, token)
    # On a machine under load Redis may be late.
    late = sum(limited_locally(one, token) for one in hosts) - before
    assert RATE <= shared <= RATE * (seconds + 1) + 1 + late
    own_redis.kill()
    alone, seconds = admitted(hosts, token)
    assert RATE <= alone <= 2 * RATE * (seconds + 1) + 1
    assert all(limited_locally(one, token) > 0 for one in hosts)
    own_redis.start()
    until_shared(hosts, token)
    logged = hosts[0].output.read_text()
    assert "using the rate limits of this host alone: ConnectionError" in logged
    assert "hunter2" not in logged


def until_shared(hosts: list[Service], token: str) -> None:
    """Until no worker limits by itself; a new connection goes to any."""

    def limited(host: Service) -> int:
        host.post("derived", token, b'{"at": "2026-05-01T00:00:00Z", "message": "m"}')
        return limited_locally(host, token)

    for host in hosts:
        wait_for(lambda host=host: len({limited(host) for _ in range(11)}) == 1)
