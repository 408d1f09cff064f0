"""Group commit: what comes in while one append is written is the next append."""

import asyncio
import os
import threading

from headrace.errors import SpoolFullError
from headrace.ingest.spool.group import GroupCommit


def test_requests_that_wait_for_the_disk_share_its_next_sync(
    open_spool, record, drain, monkeypatch
):
    spool, synced = open_spool(), []
    begun, let_go = threading.Event(), threading.Event()
    real = os.fdatasync

    def waiting(file):
        synced.append(file)
        begun.set()
        let_go.wait()
        real(file)

    async def append_all():
        group = GroupCommit(spool)
        requests = [asyncio.ensure_future(group.append([record("first")]))]
        await asyncio.to_thread(begun.wait)
        requests += [asyncio.ensure_future(group.append([record(n)])) for n in range(50)]
        await asyncio.sleep(0)
        let_go.set()
        await asyncio.gather(*requests)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", waiting)
        asyncio.run(append_all())
    assert len(synced) == 2
    assert drain()[0] == ["first", *map(str, range(50))]


def test_all_that_want_to_be_behind_are_told_when_nothing_is_pending(open_spool, record, drain):
    group = GroupCommit(open_spool())

    async def ask():
        behind = [group.append_if_pending([record(n)]) for n in range(3)]
        return await asyncio.gather(*behind)

    assert asyncio.run(ask()) == [False] * 3
    assert drain()[0] == []


def test_one_that_must_be_written_takes_those_around_it_along(open_spool, record, drain):
    group = GroupCommit(open_spool())

    async def write():
        return await asyncio.gather(
            group.append_if_pending([record(1)]),
            group.append([record(2)]),
            group.append_if_pending([]),
        )

    assert asyncio.run(write()) == [True, None, True]
    assert drain()[0] == ["1", "2"]


def test_each_request_hears_of_the_failure_and_the_next_ones_go_on(open_spool, record, drain):
    group = GroupCommit(open_spool(budget_bytes=200))

    async def write():
        failed = await asyncio.gather(
            *(group.append([record("x" * 200)]) for _ in range(3)), return_exceptions=True
        )
        await group.append([record("small")])
        return failed

    failed = asyncio.run(write())
    assert [type(one) for one in failed] == [SpoolFullError] * 3
    assert drain()[0] == ["small"]


def test_a_request_that_is_cancelled_stops_no_other(open_spool, record, drain):
    group = GroupCommit(open_spool())

    async def write():
        gone = asyncio.ensure_future(group.append([record("gone")]))
        other = asyncio.ensure_future(group.append([record("other")]))
        await asyncio.sleep(0)
        gone.cancel()
        await other
        await group.append([record("next")])

    asyncio.run(write())
    assert drain()[0] == ["gone", "other", "next"]


def test_what_is_much_is_written_in_several_appends(open_spool, record, drain):
    group = GroupCommit(open_spool(budget_bytes=3000), max_bytes=1000)

    async def write():
        requests = (group.append([record(f"{n}{'x' * 600}")]) for n in range(6))
        return await asyncio.gather(*requests, return_exceptions=True)

    assert [type(one) for one in asyncio.run(write())] == [type(None)] * 4 + [SpoolFullError] * 2
    assert [text[0] for text in drain()[0]] == list("0123")
