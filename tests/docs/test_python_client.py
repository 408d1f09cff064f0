"""The Python client of the reference: when it sends again, and when it does not."""

from __future__ import annotations

import io
import json
import urllib.error
import urllib.request
from email.message import Message

import pytest


@pytest.fixture
def send(pages, monkeypatch):
    """The function of the page."""
    monkeypatch.setenv("TOKEN", "secret")
    page = pages["docs/reference/ingest.md"]
    (client,) = [one for one in page.split("```python\n")[1:] if "urllib.request" in one]
    names = {}
    exec(client.partition("\nevents = [")[0], names)
    monkeypatch.setattr(names["time"], "sleep", lambda _: None)
    return names["send"]


@pytest.fixture
def requests(monkeypatch):
    """Sets what answers requests; gives the ids of each."""

    def answering(answer):
        asked = []

        def urlopen(request, timeout):
            assert timeout > 0
            ids = [event["event_id"] for event in json.loads(request.data)]
            asked.append(ids)
            status, code = answer(ids, len(asked))
            if status == 202:
                return io.BytesIO(json.dumps({"accepted": len(ids)}).encode())
            problem = io.BytesIO(json.dumps({"code": code}).encode())
            raise urllib.error.HTTPError(request.full_url, status, code, Message(), problem)

        monkeypatch.setattr(urllib.request, "urlopen", urlopen)
        return asked

    return answering


def events(*ids):
    return [{"event_id": one} for one in ids]


def test_a_batch_that_a_broker_rejected_is_sent_one_at_a_time(send, requests, capsys):
    asked = requests(lambda ids, _: (503, "batch-rejected") if "b" in ids else (202, ""))
    assert send(events("a", "b", "c")) == {"accepted": 2}
    assert asked == [["a", "b", "c"], ["a"], ["b"], ["c"]]
    assert capsys.readouterr().out.startswith("b is rejected:")


def test_an_unknown_outcome_is_sent_again_with_the_same_ids(send, requests):
    asked = requests(lambda _, number: (503, "unknown-outcome") if number < 3 else (202, ""))
    assert send(events("a", "b")) == {"accepted": 2}
    assert asked == [["a", "b"]] * 3


def test_what_is_not_valid_is_not_sent_again(send, requests):
    asked = requests(lambda *_: (400, "no-event-accepted"))
    with pytest.raises(ValueError, match="no-event-accepted"):
        send(events("a", "b"))
    assert len(asked) == 1
