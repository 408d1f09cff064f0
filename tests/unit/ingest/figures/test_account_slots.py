"""Accounts with figures of their own: as many as are asked for, the same for every worker."""

import json
import multiprocessing

import pytest

from headrace.ingest.figures.account_slots import SHARED_SLOT, AccountSlots


@pytest.fixture
def opened(tmp_path):
    """Opens the slots of a host as another worker does."""
    workers = []

    def worker(max_accounts=3):
        workers.append(AccountSlots(tmp_path / "accounts", max_accounts))
        return workers[-1]

    yield worker
    for slots in workers:
        slots.close()


def test_accounts_have_the_same_number_in_every_worker(opened):
    first, second = opened(), opened()
    assert [first.slot("acme"), second.slot("shop"), first.slot("shop")] == ["1", "2", "2"]
    assert [second.slot("acme"), opened().slot("shop")] == ["1", "2"]
    assert first.accounts() == second.accounts() == {"1": "acme", "2": "shop"}


def test_accounts_beyond_the_limit_share_a_number(opened):
    first, second = opened(), opened()
    for name in "abcdef":
        first.slot(name)
    assert [second.slot(name) for name in "abcdf"] == ["1", "2", "3", SHARED_SLOT, SHARED_SLOT]
    assert first.accounts() == {"1": "a", "2": "b", "3": "c"}


def test_there_may_be_no_account_with_figures_of_its_own(opened):
    assert (opened(0).slot("acme"), opened(0).accounts()) == (SHARED_SLOT, {})


@pytest.mark.parametrize("name", ["a", "\u00e9" * 128, "x" * 256, 'quote" and \\', "two\nlines"])
def test_any_account_that_a_token_may_have_fits(opened, name):
    assert opened().slot(name) == "1"
    assert opened().accounts() == {"1": name}


def test_an_account_that_no_token_of_ours_has_does_no_harm(opened):
    slots = opened()
    assert slots.slot("") == SHARED_SLOT
    assert [slots.slot("x" * 1000), slots.slot("next")] == ["1", "2"]
    assert slots.accounts() == {"1": "x" * 256, "2": "next"}


def meet(file, names, answer):
    slots = AccountSlots(file, 50)
    answer.write_text(json.dumps({name: slots.slot(name) for name in names}))
    slots.close()


def test_workers_that_meet_accounts_at_once_agree(tmp_path):
    context = multiprocessing.get_context("spawn")
    names = [f"account-{number}" for number in range(50)]
    answers = [tmp_path / f"{number}.json" for number in range(3)]
    orders = (names, names[::-1], names[25:] + names[:25])
    workers = [
        context.Process(target=meet, args=(tmp_path / "accounts", order, answer))
        for order, answer in zip(orders, answers, strict=True)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    first, second, third = (json.loads(answer.read_text()) for answer in answers)
    assert first == second == third
    assert sorted(first.values(), key=int) == [str(number) for number in range(1, 51)]
