"""The application as one caller asks it, without a server and without Kafka."""

import json
from datetime import UTC, datetime

from headrace.ingest.application import Application
from headrace.ingest.config import IngestConfig
from headrace.ingest.figures.account_slots import AccountSlots
from headrace.ingest.figures.counters import Counters
from headrace.ingest.figures.service_metrics import count_names
from headrace.ingest.http.request_guard import RequestGuard
from headrace.ingest.tokens.token import Token, issue
from headrace.model import Topic
from headrace.settings import IngestSettings
from headrace.topics.spreads.following import FollowedSpreads


class Occurrence:
    event_id: str
    message: str


TOPICS = {
    name: Topic(name, event=Occurrence, event_id="event_id") for name in ("occurrences", "other")
}


class Push:
    x_github_delivery: str
    x_github_event: str
    x_github_hook_id: str | None
    action: str | None


PUSHES = {"pushes": Topic("pushes", event=Push, event_id="x_github_delivery")}
NOW = datetime(2026, 5, 1, tzinfo=UTC)


def token_with(**changes):
    facts = {
        "public_id": "abcdefgh-123",
        "name": "web",
        "project": "shop",
        "account": "acme",
        "topics": ("occurrences",),
        "secret_sha256": "",
        "created": NOW,
    }
    token = Token(**facts | changes)
    return (token, "") if token.is_webhook else issue(token)


class EventStore:
    """Takes everything, and remembers it."""

    def __init__(self):
        self.taken, self.standings, self.error = [], {}, None
        self.kafka_answers = True

    async def accept(self, topic, events, headers, seconds):
        if self.error:
            raise self.error
        self.taken += [(topic, event.value, headers) for event in events]
        return False

    def standing(self, topic):
        return self.standings.get(topic, "ready")

    def spool_stats(self):
        return {}


class Limiter:
    """Says to wait so many seconds, and remembers the charges."""

    def __init__(self):
        self.charges, self.wait = [], 0.0

    async def acquire(self, charges):
        if self.wait == 0:
            self.charges += [(charge.bucket, charge.amount) for charge in charges]
        return self.wait


class Registry:
    ready = are_current = True

    def __init__(self, token):
        self.get = {token.public_id: token}.get


class Asked:
    """An application with one token, and what it was asked and answered."""

    def __init__(self, runner, folder, settings=None, served=TOPICS, queries=None, **changes):
        self.runner = runner
        self.token, self.text = token_with(**changes)
        self.now, self.limiter, self.acceptance = [0.0], Limiter(), EventStore()
        settings = settings or IngestSettings()
        self.tokens = Registry(self.token)
        gate = RequestGuard(self.tokens, self.limiter, settings, lambda: self.now[0])
        loader = queries and (lambda: queries)
        config = IngestConfig(settings, served, {}, folder, "test", folder / "log", queries=loader)
        self._counters = Counters(folder, count_names(served, settings.metrics_accounts))
        self._accounts = AccountSlots(folder / "accounts", settings.metrics_accounts)
        figures = self._counters, self._accounts
        self.spreads = FollowedSpreads(served.values(), dict, file=folder / "spreads")
        self.application = Application(config, gate, self.acceptance, *figures, self.spreads)
        self.read = 0

    def close(self):
        """Closes the files of the application and of its figures."""
        self.application.close()
        self._accounts.close()
        self._counters.close()

    def __call__(self, path, body=b"", method="POST", **headers):
        """Status, headers and document of the answer."""
        named = {"authorization": f"Bearer {self.text}"} | headers
        scope = {
            "type": "http",
            "method": method,
            "path": path.partition("?")[0],
            "query_string": path.partition("?")[2].encode(),
            "client": ("10.0.0.7", 50000),
            "headers": [
                (name.replace("_", "-").encode(), value.encode())
                for name, value in named.items()
                if value
            ],
        }
        sent = []

        async def receive():
            self.read += 1
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message):
            sent.append(message)

        self.runner.run(self.application(scope, receive, send))
        text = sent[1]["body"]
        found = dict(sent[0]["headers"])
        kind = found.get(b"content-type", b"")
        return (
            sent[0]["status"],
            found,
            json.loads(text) if kind.endswith(b"json") and b"nd" not in kind else text.decode(),
        )

    def post(self, body, topic="occurrences", **headers):
        return self(f"/v1/topics/{topic}/events", body, **headers)


def event(number=0):
    return json.dumps({"event_id": f"e-{number}", "message": "hello"}).encode()
