"""Webhooks: requests that carry no token, but are signed with a secret that both sides know.

A webhook's secret is derived from ``ingest.webhook_key``, its public id and its generation, so the
registry holds nothing that could sign a request. The signature covers the body alone: an attacker
who records a request can send it again, also under another delivery id, so its way must be TLS.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus

import msgspec

from headrace.ingest.http.problem import RETRY_AFTER, refused
from headrace.ingest.http.request import Request
from headrace.ingest.tokens.token import Token, TokenKind, webhook_secret
from headrace.model import Topic
from headrace.settings import Secret

_SPACE = b" \t\r\n"


@dataclass(frozen=True, slots=True)
class WebhookFormat:
    """How one sender of webhooks signs and describes its requests.

    Attributes:
        signature: header with the HMAC-SHA256 of the body, in hexadecimal after ``prefix``.
        prefix: what stands before the hexadecimal digits.
        event_type: header that names the kind of event.
        ping: the kind of event that only tries the connection.
        fields: headers that begin with this go into fields of the event, named alike.
    """

    signature: bytes
    prefix: bytes
    event_type: bytes
    ping: bytes
    fields: str


FORMATS: Mapping[TokenKind, WebhookFormat] = {
    TokenKind.GITHUB: WebhookFormat(
        signature=b"x-hub-signature-256",
        prefix=b"sha256=",
        event_type=b"x-github-event",
        ping=b"ping",
        fields="x-github-",
    ),
}


class Webhooks:
    """Checks signatures, and makes events of signed requests."""

    def __init__(self, key: Secret | None, topics: Mapping[str, Topic]) -> None:
        self._key = key
        self._headers = {
            (kind, name): _headers(topic, webhook.fields)
            for kind, webhook in FORMATS.items()
            for name, topic in topics.items()
        }

    def verify(self, request: Request, token: Token, body: bytes, now: datetime) -> None:
        """Returns if the body was signed with the webhook's secret, or in time with its former one.

        How much of a wrong signature is right does not show in the time this takes.

        Raises:
            RefusedRequestError: 401 for another signature; 503 where this host has no key.
        """
        if self._key is None:
            detail = "webhooks are not taken: `ingest.webhook_key` is not set"
            raise refused(HTTPStatus.SERVICE_UNAVAILABLE, "not-ready", detail, RETRY_AFTER)
        webhook = FORMATS[token.kind]
        signature = request.headers.get(webhook.signature, b"")
        is_signed = False
        is_former_valid = token.former_until is not None and now < token.former_until
        # Each valid secret is compared: how long it takes must not reveal which one was close.
        for generation in (token.generation, token.generation - 1)[: 1 + is_former_valid]:
            secret = webhook_secret(self._key, token.public_id, generation).encode()
            digest = hmac.digest(secret, body, "sha256").hex().encode()
            is_signed |= hmac.compare_digest(signature, webhook.prefix + digest)
        if not is_signed:
            header = webhook.signature.decode()
            detail = f"{header} is not the signature of this body with the webhook's secret"
            raise refused(HTTPStatus.UNAUTHORIZED, "no-valid-signature", detail)

    def event(self, request: Request, token: Token, body: bytes) -> bytes | None:
        """Returns the JSON text of the event; ``None`` where the request only tries the connection.

        The headers of its format go before the body's own members, into the fields that the topic
        declares for them: ``x_github_delivery`` takes ``X-GitHub-Delivery``.
        """
        webhook, (topic,) = FORMATS[token.kind], token.topics
        if request.headers.get(webhook.event_type) == webhook.ping:
            return None
        text = body.strip(_SPACE)
        values = {
            field: request.header(header)
            for field, header in self._headers[token.kind, topic]
            if header in request.headers
        }
        if not values or not text.startswith(b"{"):
            return text
        rest = text[1:].lstrip(_SPACE)
        return msgspec.json.encode(values)[:-1] + (b"" if rest.startswith(b"}") else b",") + rest


def _headers(topic: Topic, prefix: str) -> Sequence[tuple[str, bytes]]:
    """Returns the fields of a topic's event that take a header, each with the header's name."""
    names = topic.schema.names if topic.schema else ()
    fields = [(name, name.replace("_", "-")) for name in names]
    return [(name, header.encode()) for name, header in fields if header.startswith(prefix)]
