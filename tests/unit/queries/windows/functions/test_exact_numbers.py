"""A root is rounded once, and correctly."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.queries.windows.functions.exact_numbers import square_root


@given(mantissa=st.integers(2**52, 2**53 - 2), shift=st.integers(-1_000, 900))
def test_a_root_beside_the_middle_of_two_doubles_goes_to_the_nearer_one(mantissa, shift):
    middle = 2 * mantissa + 1
    lower, upper = mantissa * 2.0**shift, (mantissa + 1) * 2.0**shift
    scale = (4 ** max(shift, 0), 4 ** (1 + max(-shift, 0)))
    assert square_root((middle**2 - 1) * scale[0], scale[1]) == lower
    assert square_root((middle**2 + 1) * scale[0], scale[1]) == upper
    assert square_root(middle**2 * scale[0], scale[1]) == (upper if mantissa % 2 else lower)


@pytest.mark.parametrize(
    ("numerator", "denominator", "root"),
    [
        (0, 7, 0.0),
        (2, 1, 2**0.5),
        (1, 4**1_074, 5e-324),
        (1, 16 * 4**1_074, 0.0),
        (4**1_024, 1, None),
    ],
)
def test_roots_at_the_ends_of_what_doubles_are(numerator, denominator, root):
    assert square_root(numerator, denominator) == root
