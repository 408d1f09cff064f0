"""What is proposed: as few partitions as the limit allows, and nothing again once it is applied."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model import ByAccount, Spread
from headrace.topics.spreads.proposal import movement, newest_widths, placed, proposed_widths

HOUR = timedelta(hours=1)
STRATEGY = ByAccount(HOUR)
NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)

accounts = st.text("abcde", min_size=1, max_size=2)
loads = st.dictionaries(accounts, st.integers(0, 10**9))


@given(loads, st.dictionaries(accounts, st.integers(1, 40)), st.integers(1, 40), st.data())
def test_what_is_applied_is_not_proposed_again_for_the_same_load(loads, widths, partitions, data):
    widths = {account: min(width, partitions) for account, width in widths.items()}
    total = sum(loads.values()) + data.draw(st.integers(0, 10**6))
    above = data.draw(st.integers(1, 1_000))
    proposed = proposed_widths(loads, widths, partitions, total, above)
    assert all(1 <= width <= partitions for width in proposed.values())
    assert all(widths.get(account, 1) != width for account, width in proposed.items())
    assert not proposed_widths(loads, widths | proposed, partitions, total, above)


@given(loads, st.integers(1, 40), st.integers(1, 1_000))
def test_an_account_grows_to_the_fewest_partitions_that_the_limit_allows(loads, partitions, above):
    total = sum(loads.values())
    for account, width in proposed_widths(loads, {}, partitions, total, above).items():

        def fits(width: int, load: int = loads[account]) -> bool:
            return load * partitions * 100 <= above * total * width

        assert not fits(width - 1)
        assert fits(width) or width == partitions


@given(st.integers(1, 10**6), st.integers(2, 40), st.integers(-20, 20))
def test_a_load_that_moves_about_the_limit_changes_nothing_twice(load, partitions, percent):
    """A fifth more or less than what an account was spread for, as loads of two hours differ."""
    total = 100 * load
    first = proposed_widths({"a": 20 * load}, {}, partitions, total, 50)
    other = 20 * load * (100 + percent) // 100
    second = proposed_widths({"a": other}, first, partitions, total, 50)
    assert second.get("a", 40) >= first.get("a", 1)  # it may grow, and does not shrink


def test_accounts_that_lost_their_load_shrink_back():
    widths = {"large": 8, "gone": 4, "half": 8}
    proposed = proposed_widths({"large": 800, "half": 300}, widths, 16, 1_600, 100)
    assert proposed == {"gone": 1, "half": 6}


def test_without_any_load_every_spread_shrinks():
    assert proposed_widths({}, {"a": 3}, 4, 0, 50) == {"a": 1}


@pytest.mark.parametrize("sinces", [(0, 1), (0, 0)])
def test_the_newest_spread_is_that_of_the_latest_since_or_the_applied_one(sinces):
    declared, applied = (NOON + since * HOUR for since in sinces)
    strategy = ByAccount(HOUR, {"a": (Spread(declared, 2),), "b": (Spread(declared, 3),)})
    assert newest_widths(strategy, {"a": (Spread(applied, 5),), "c": (Spread(applied, 1),)}) == {
        "a": 5,
        "b": 3,
    }


@given(
    st.dictionaries(st.tuples(accounts, st.integers(0, 50)), st.integers(1, 100)),
    st.dictionaries(accounts, st.integers(1, 8)),
    st.dictionaries(accounts, st.integers(1, 8)),
)
def test_movement_loses_no_load_and_moves_what_is_placed_elsewhere(parts, widths, changes):
    moves = movement(parts, STRATEGY, widths, changes, 8)
    assert moves.before.total() == moves.after.total() == sum(parts.values())
    now, then = (placed(parts, STRATEGY, w, 8) for w in (widths, widths | changes))
    moved = sum(load for place, load in parts.items() if now[place] != then[place])
    assert moves.moved.total() == moved
    assert not set(moves.moved) - set(changes)
    for account, used in moves.used_after.items():
        assert used <= (widths | changes).get(account, 1)
