"""Bodies: bounded as they come in and as they are decoded."""

import asyncio
import gzip
import random
import subprocess
import sys
import zlib
from concurrent.futures import ThreadPoolExecutor

import pytest
import zstandard

from headrace.ingest.http.body import BodyLimits, BodyReader, ClientGoneError
from headrace.ingest.http.budget import MemoryBudget
from headrace.ingest.http.problem import RefusedRequestError

both = pytest.mark.parametrize(
    ("encoding", "encode"), [("gzip", gzip.compress), ("zstd", zstandard.compress)]
)
THREADS = ThreadPoolExecutor(1)
LIMITS = BodyLimits(sent_bytes=100_000, decoded_bytes=1_000_000, ratio=100, seconds=30)


def messages(*pieces):
    """ASGI's receive, of a body in these pieces; it stays silent after a missing last one."""
    waiting = list(pieces)

    async def receive():
        if not waiting:
            await asyncio.Event().wait()
        piece = waiting.pop(0)
        if piece is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": piece, "more_body": bool(waiting)}

    return receive


def read(*pieces, length="", encoding="", limits=LIMITS, share=None):
    share = share or MemoryBudget(10**9).share()
    return asyncio.run(BodyReader(limits, THREADS).read(messages(*pieces), length, encoding, share))


def refusal(*pieces, **how):
    with pytest.raises(RefusedRequestError) as caught:
        read(*pieces, **how)
    problem = caught.value.problem
    return problem.status.value, problem.code


def test_a_body_is_its_pieces_in_order():
    assert read(b"ab", b"", b"cd") == b"abcd"


def test_a_body_ends_with_its_length_whatever_may_follow():
    async def receive():
        return {"type": "http.request", "body": b"abc", "more_body": True}

    share = MemoryBudget(100).share()
    assert asyncio.run(BodyReader(LIMITS, THREADS).read(receive, "6", "", share)) == b"abcabc"


@pytest.mark.parametrize(("over", "fits"), [(-1, True), (0, True), (1, False)])
def test_a_body_may_be_as_large_as_the_limit_and_no_larger(over, fits):
    body = b"x" * (LIMITS.sent_bytes + over)
    if fits:
        assert read(body[:500], body[500:]) == body
    else:
        assert refusal(body[:500], body[500:]) == (413, "body-too-large")
        assert refusal(body) == (413, "body-too-large")


def test_a_length_beyond_the_limit_is_refused_before_a_byte_is_read():
    assert refusal(length=str(LIMITS.sent_bytes + 1)) == (413, "body-too-large")


def test_a_body_that_does_not_come_is_given_up():
    async def silent():
        await asyncio.Event().wait()

    limits = BodyLimits(10, 10, 1, seconds=0.01)
    with pytest.raises(RefusedRequestError) as caught:
        asyncio.run(BodyReader(limits, THREADS).read(silent, "", "", MemoryBudget(9).share()))
    assert caught.value.problem.code == "body-too-slow"
    assert (b"connection", b"close") in caught.value.headers


def test_a_client_that_left_gets_no_answer():
    with pytest.raises(ClientGoneError):
        read(b"ab", None)


@pytest.mark.parametrize("encoding", ["", "identity", "Identity", " gzip ", "x-gzip", "zstd"])
def test_every_encoding_gives_the_same_body(encoding):
    body = b'{"n": 1}' * 1000
    encode = {"gzip": gzip.compress, "zstd": zstandard.compress}.get(
        encoding.strip().removeprefix("x-"), bytes
    )
    assert read(encode(body), encoding=encoding) == body


@pytest.mark.parametrize(
    ("encoding", "encode"), [("gzip", gzip.compress), ("zstd", zstandard.compress)]
)
def test_members_and_frames_in_a_row_are_one_body(encoding, encode):
    assert read(encode(b"ab" * 500) + encode(b"cd"), encoding=encoding) == b"ab" * 500 + b"cd"


@pytest.mark.parametrize(
    ("encoding", "encode"), [("gzip", gzip.compress), ("zstd", zstandard.compress)]
)
def test_a_stream_cut_off_anywhere_is_refused(encoding, encode):
    whole = encode(bytes(range(256)) * 20)
    for end in range(1, len(whole), 7):
        assert refusal(whole[:end], encoding=encoding) == (400, "undecodable-body")


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_bytes_after_the_stream_are_refused(encoding):
    encode = {"gzip": gzip.compress, "zstd": zstandard.compress}[encoding]
    assert refusal(encode(b"{}") + b"more", encoding=encoding) == (400, "undecodable-body")
    assert refusal(b"no such thing", encoding=encoding) == (400, "undecodable-body")


@pytest.mark.parametrize("encoding", ["deflate", "br", "gzip, gzip", "gzip, identity", "x"])
def test_other_and_nested_encodings_are_refused(encoding):
    assert refusal(b"{}", encoding=encoding) == (415, "unknown-encoding")


@pytest.mark.parametrize(
    ("encoding", "encode"), [("gzip", gzip.compress), ("zstd", zstandard.compress)]
)
def test_a_ratio_beyond_the_limit_is_refused(encoding, encode):
    assert read(encode(b" " * 60_000), encoding=encoding) == b" " * 60_000
    assert refusal(encode(b" " * 900_000), encoding=encoding) == (413, "decoded-body-too-large")


def test_a_body_holds_what_was_sent_and_then_what_it_became():
    budget, sent = MemoryBudget(10**6), gzip.compress(b"x" * 50_000)
    with budget.share() as share:
        assert len(read(sent[:20], sent[20:], encoding="gzip", share=share)) == 50_000
        assert budget.held_bytes == 50_000
        assert share.sent_bytes == len(sent)
    assert budget.held_bytes == 0


@pytest.mark.parametrize("encoding", ["", "gzip", "zstd"])
def test_bodies_beyond_the_budget_are_refused_and_hold_nothing(encoding):
    encode = {"gzip": gzip.compress, "zstd": zstandard.compress}.get(encoding, bytes)
    budget, sent = MemoryBudget(40_000), encode(b"x" * 50_000)
    with budget.share() as share:
        assert refusal(sent[:9], sent[9:], encoding=encoding, share=share) == (503, "overloaded")
    assert budget.held_bytes == 0


def test_a_body_that_comes_slowly_is_held_as_far_as_it_has_come():
    budget = MemoryBudget(100)
    with budget.share() as share, pytest.raises(ClientGoneError):
        read(b"x" * 60, None, share=share)
    assert budget.held_bytes == 0
    with budget.share() as first, budget.share() as second:
        first.received(60)
        assert refusal(b"x" * 20, b"x" * 21, share=second) == (503, "overloaded")


class Fed:
    """A decoder that counts the bytes it is given."""

    def __init__(self, decoder, counted):
        self._decoder, self._counted = decoder, counted

    def decompress(self, piece, *most):
        self._counted.append(len(piece))
        return self._decoder.decompress(piece, *most)

    def __getattr__(self, name):
        return getattr(self._decoder, name)


@pytest.fixture
def fed(monkeypatch):
    """Bytes given to decoders, a number for each time."""
    counted, make_gzip, make_zstd = [], zlib.decompressobj, zstandard.ZstdDecompressor
    monkeypatch.setattr(
        "headrace.ingest.http.body.zlib.decompressobj",
        lambda **how: Fed(make_gzip(**how), counted),
    )

    class Zstd:
        def __init__(self, **how):
            self._made = make_zstd(**how)

        def decompressobj(self):
            return Fed(self._made.decompressobj(), counted)

    monkeypatch.setattr("headrace.ingest.http.body.zstandard.ZstdDecompressor", Zstd)
    return counted


EMPTY = {"gzip": gzip.compress(b""), "zstd": zstandard.compress(b"")}


@pytest.mark.parametrize("part", [*EMPTY.items(), ("zstd", b"\x50\x2a\x4d\x18\0\0\0\0")])
def test_many_empty_members_or_frames_are_refused_at_the_cost_of_some(part, fed):
    encoding, empty = part
    assert refusal(empty * 5_000, encoding=encoding) == (400, "undecodable-body")
    assert len(fed) < 5_000
    assert sum(fed) < 10 * len(empty) * 5_000


@both
def test_a_body_of_many_members_or_frames_is_read_once_or_so(encoding, encode, fed):
    parts = [encode(bytes([number % 256]) * 900) for number in range(1000)]
    sent = b"".join(parts)
    body = read(sent, encoding=encoding, limits=BodyLimits(10**6, 10**7, 100, 30))
    assert len(body) == 900_000
    assert sum(fed) < 3 * len(sent) + 1000 * 512


@pytest.mark.parametrize("size", [511, 512, 513, 1535, 1536, 1537, 40_000])
def test_members_may_end_anywhere(size):
    noise = random.Random(size).randbytes(size)
    packed = zlib.compressobj(0, wbits=31)
    member = packed.compress(noise) + packed.flush()
    assert read(member + gzip.compress(b"x") + member, encoding="gzip") == noise + b"x" + noise


BOMB = """
import asyncio, gzip, resource, sys, zlib, zstandard
from concurrent.futures import ThreadPoolExecutor
from headrace.ingest.http.body import BodyLimits, BodyReader
from headrace.ingest.http.budget import MemoryBudget
from headrace.ingest.http.problem import RefusedRequestError

encoding = sys.argv[1]
if encoding == "gzip":
    packer = zlib.compressobj(9, wbits=31)
    bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(1000)) + packer.flush()
else:
    packer = zstandard.ZstdCompressor(level=3).compressobj()
    bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(1000)) + packer.flush()

async def receive():
    return {"type": "http.request", "body": bomb}

before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    reader = BodyReader(BodyLimits(2_000_000, 10_000_000, 100, 30), ThreadPoolExecutor(1))
    asyncio.run(reader.read(receive, "", encoding, MemoryBudget(10**9).share()))
except RefusedRequestError as error:
    print(error.problem.code)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_a_bomb_of_a_gigabyte_adds_less_than_64_megabytes(encoding):
    command = [sys.executable, "-c", BOMB, encoding]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    code, kilobytes = done.stdout.split()
    assert code == "decoded-body-too-large"
    assert int(kilobytes) * 1024 < 64_000_000
