"""Frames: what is read was written as a frame, whatever the bytes are."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.ingest.spool.frames import Damage, Frame, frames, scan

MARKER = 0x0123456789ABCDEF
PAYLOADS = st.lists(st.binary(max_size=60), max_size=6)


def payloads(content):
    return [item.payload for item in scan(content, MARKER) if isinstance(item, Frame)]


@given(PAYLOADS, st.integers(1, 2**60))
def test_what_is_framed_is_read_back_with_its_counters(given_payloads, counter):
    content = frames(given_payloads, MARKER, counter)
    found = list(scan(content, MARKER))
    assert [item.payload for item in found] == given_payloads
    assert [item.counter for item in found] == [counter + n for n in range(len(found))]
    assert all(item.end + item.bytes_left == len(content) for item in found)


@given(st.binary(max_size=500), PAYLOADS, st.binary(max_size=200))
@example(MARKER.to_bytes(8, "little") * 20, [b"x"], b"")
def test_any_bytes_around_frames_are_damage_and_no_byte_is_left_out(before, inner, after):
    content = before + frames(inner, MARKER, 1) + after
    found = list(scan(content, MARKER))
    assert payloads(content) == inner
    at = 0
    for item in found:
        assert item.start == at < item.end
        at = item.end
    assert at == len(content)


@settings(max_examples=300)
@given(st.binary(max_size=2000))
def test_random_bytes_are_never_a_frame(content):
    assert payloads(content + MARKER.to_bytes(8, "little") + content) == []


def test_a_frame_inside_an_event_is_not_found_when_its_frame_is_damaged():
    forged = frames([b"forged"], MARKER + 1, 1)
    content = bytearray(frames([b"before", forged, b"behind"], MARKER, 1))
    content[len(frames([b"before"], MARKER, 1)) + 20] ^= 1
    assert payloads(bytes(content)) == [b"before", b"behind"]


def test_a_length_beyond_the_end_hides_nothing_behind_it():
    content = bytearray(frames([b"first", b"second", b"third"], MARKER, 1))
    content[12 + 6] = 255  # high byte of the first frame's length
    assert payloads(bytes(content)) == [b"second", b"third"]
    assert isinstance(next(scan(bytes(content), MARKER)), Damage)
