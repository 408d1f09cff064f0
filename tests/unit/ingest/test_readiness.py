"""Readiness: many ask, one looks."""

import asyncio
import threading

import pytest

from headrace.ingest.readiness import Readiness


class Look:
    """What Kafka says, when it is let to."""

    def __init__(self, *answers):
        self.answers, self.count = list(answers), 0
        self.may_answer = threading.Event()

    def __call__(self):
        self.count += 1
        assert self.may_answer.wait(30)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_who_asks_while_somebody_looks_gets_the_same_answer():
    look = Look(True)

    async def ask():
        readiness = Readiness(look, lambda: 0.0)
        asking = [asyncio.create_task(readiness.is_ready()) for _ in range(100)]
        await asyncio.sleep(0)
        asking[0].cancel()
        look.may_answer.set()
        return await asyncio.gather(*asking[1:])

    assert asyncio.run(ask()) == [True] * 99
    assert look.count == 1


def test_an_answer_is_good_for_a_second():
    look, now = Look(True, False), [0.0]
    look.may_answer.set()

    async def ask():
        readiness = Readiness(look, lambda: now[0])
        found = []
        for time in (0.0, 0.9, 1.0, 1.9):
            now[0] = time
            found.append(await readiness.is_ready())
        return found

    assert asyncio.run(ask()) == [True, True, False, False]
    assert look.count == 2


def test_a_look_that_failed_is_not_remembered():
    look = Look(ValueError("no"), True)
    look.may_answer.set()

    async def ask():
        readiness = Readiness(look, lambda: 0.0)
        with pytest.raises(ValueError, match="no"):
            await readiness.is_ready()
        return await readiness.is_ready()

    assert asyncio.run(ask())
