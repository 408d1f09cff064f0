"""SIGKILL at every call that changes the disk: acknowledged is recovered, nothing is invented."""

import base64
import json
import os
import signal

import pytest

from headrace.ingest.spool.loader import Loader, SendResult
from headrace.ingest.spool.record import SpoolRecord
from headrace.ingest.spool.spool import Spool, SpoolLimits

CALLS = ("open", "pwrite", "fdatasync", "fsync", "unlink", "rename", "truncate", "posix_fallocate")
LIMITS = SpoolLimits(segment_bytes=250)
REJECTED = "5"


def made(text):
    return SpoolRecord("t", b"k", text.encode(), (), 0, None)


def rejecting(take):
    """Kafka, which never takes one of the records."""

    def send(records, _):
        texts = [record.value.decode() for record in records]
        take([text for text in texts if text != REJECTED])
        return SendResult({place: "no" for place, text in enumerate(texts) if text == REJECTED})

    return send


def kill_at(number, how):
    """Replaces the calls by ones that kill this process at the ``number``th of them."""
    left = [number]

    def replaced(name, real):
        def call(*arguments, **named):
            left[0] -= 1
            if not left[0] and how != "after":
                if how == "half" and name == "pwrite":
                    file, content, start = arguments
                    real(file, bytes(content)[: len(content) // 2], start)
                os.kill(os.getpid(), signal.SIGKILL)
            answer = real(*arguments, **named)
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
            return answer

        return call

    for name in CALLS:
        setattr(os, name, replaced(name, getattr(os, name)))


def work(folder, ledger):
    """Appends, loads while appending goes on, fails once, and ends with records in the spool."""

    def note(kind, texts):
        ledger.write(json.dumps([kind, texts]).encode() + b"\n")

    def append(*texts):
        note("tried", texts)
        spool.append([made(text) for text in texts])
        note("acked", texts)

    spool = Spool(folder, LIMITS)
    append("1", "2", "3")
    append("4")
    append("5", "6")
    loader = Loader(spool, rejecting(lambda texts: note("sent", texts)))
    loader.run_once()
    append("7", "8")
    append("9")
    loader.run_once()
    append("10", "11", "12")
    append("13")


def run_until_killed(folder, ledger_path, number, how):
    """Whether a child process came to its end in spite of it."""
    child = os.fork()
    if not child:
        try:
            with ledger_path.open("ab", buffering=0) as ledger:
                kill_at(number, how)
                work(folder, ledger)
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return not os.WIFSIGNALED(status)


def noted(ledger_path):
    found = {"tried": [], "acked": [], "sent": []}
    for line in ledger_path.read_text().splitlines():
        kind, texts = json.loads(line)
        found[kind].append(texts)
    return found


def recovered(folder):
    """What the next process replays, after an append of its own; and how many it misses."""
    spool, sent = Spool(folder, LIMITS), []
    spool.append([made("last")])
    loader = Loader(spool, rejecting(sent.extend))
    report = loader.run_once()
    assert not spool.pending
    assert spool.stats().missing == report.missing == 0
    loader.close()
    spool.close()
    return sent


def quarantined(folder):
    files = (folder / "quarantine").glob("*.rejected")
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    return {base64.b64decode(line["value"]).decode() for line in lines}


def check(ledger, rest, aside):
    sent = [text for batch in ledger["sent"] for text in batch]
    tried = [text for texts in ledger["tried"] for text in texts]
    acked = [text for texts in ledger["acked"] for text in texts]
    delivered = list(dict.fromkeys(sent + rest))
    assert set(acked) <= set(delivered) | aside
    assert aside <= {REJECTED}
    assert delivered == [text for text in [*tried, "last"] if text in set(delivered)]
    for texts in ledger["tried"]:
        assert len(set(texts) & (set(delivered) | aside)) in (0, len(texts))
    repeated = [text for text in rest if text in sent]
    assert repeated == [] or repeated == ledger["sent"][-1]


@pytest.mark.parametrize("how", ["before", "half", "after"])
def test_killed_at_every_call_nothing_acknowledged_is_lost_and_nothing_invented(tmp_path, how):
    number = ended = 0
    while not ended:
        number += 1
        folder, ledger = tmp_path / f"{number}", tmp_path / f"{number}.ledger"
        ended = run_until_killed(folder, ledger, number, how)
        check(noted(ledger), recovered(folder), quarantined(folder))
    assert number > 50
