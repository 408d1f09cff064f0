"""The hash of ids is what its page says, however the column is laid out."""

import hashlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.events.event_hash import hash_positions, hash_texts

MASK = 2**64 - 1


def reference(content: bytes) -> int:
    if len(content) > 256:
        content = hashlib.blake2b(content, digest_size=32).digest()
    mixed = len(content) * 0x9E3779B97F4A7C15 & MASK
    for place in range(0, len(content), 8):
        word = int.from_bytes(content[place : place + 8], "little")
        mixed = (mixed ^ word) * 0xBF58476D1CE4E5B9 & MASK
        mixed ^= mixed >> 32
    return finalized(mixed)


def finalized(mixed: int) -> int:
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB & MASK
    return mixed ^ (mixed >> 31)


def expected(texts):
    return [0 if text is None else reference(text.encode()) for text in texts]


texts = st.lists(st.none() | st.text(max_size=300), max_size=20)


@given(texts)
def test_a_column_has_the_hash_of_each_of_its_texts(values):
    assert hash_texts(pa.array(values, pa.string())).tolist() == expected(values)


@given(
    texts, st.integers(0, 20), st.sampled_from([pa.string(), pa.large_string(), pa.string_view()])
)
def test_neither_chunks_nor_slices_nor_types_change_it(values, cut, kind):
    array = pa.array(values, kind)
    chunks = pa.chunked_array([array[:cut], array[cut:]], kind)
    assert hash_texts(chunks).tolist() == expected(values)
    assert hash_texts(array[cut:]).tolist() == expected(values[cut:])


@pytest.mark.parametrize(
    ("text", "hash_"),
    [
        ("", 0),
        ("e1", 6431099091872251705),
        ("9f1b7c1e-7a53-4a0b-8a37-94c1fd0b5a11", 3822581598109085033),
    ],
)
def test_it_never_changes(text, hash_):
    """Entries of older versions are added to those of this one."""
    assert hash_texts(pa.array([text])).tolist() == [hash_]


def test_the_place_of_a_record_is_hashed_with_its_topic():
    offsets = np.array([0, 1, 2**40], np.int64)
    place = reference(b"clicks/3")
    gamma = 0x9E3779B97F4A7C15
    assert hash_positions("clicks", 3, offsets).tolist() == [
        finalized((place + offset) * gamma & MASK) for offset in offsets.tolist()
    ]


def test_ids_that_differ_in_one_byte_differ():
    ids = [f"event-{n:020d}" for n in range(100_000)]
    assert len(set(hash_texts(pa.array(ids)).tolist())) == len(ids)
