"""Views of `ingest` and of `tokens`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from headrace.cli.encoding import merged
from headrace.cli.screen import Screen, safe, table
from headrace.cli.view import view
from headrace.ingest.tokens.views import token_cells

if TYPE_CHECKING:
    from headrace.ingest.tokens.token import Token


# Hashes of secrets, which no reader of the list can use.
_SECRETS = ("secret_sha256", "former_sha256")


@dataclass(frozen=True)
class Serving:
    """The HTTP service is about to start."""

    address: str
    workers: int
    topics: tuple[str, ...]


@dataclass(frozen=True)
class NewToken:
    """A token with its secret, which is shown only once."""

    token: Token
    text: str

    def to_json(self) -> dict[str, Any]:
        """Returns the token's facts beside its text."""
        return _facts(self.token) | {"token": self.text}


@dataclass(frozen=True)
class TokenList:
    """Tokens without their secrets, and ids of tokens whose record can't be read."""

    tokens: tuple[Token, ...]
    unreadable: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Returns the facts of each token."""
        return {"tokens": [_facts(token) for token in self.tokens], "unreadable": self.unreadable}


@view.register
def _serving(serving: Serving, screen: Screen) -> None:
    workers = f"{serving.workers} worker(s)"
    screen.out.print(f"Serving {serving.address} with {workers}:", highlight=False)
    for name in serving.topics:
        where = f"{serving.address}/v1/topics/{escape(name)}/events"
        screen.out.print(f"  POST {where}", highlight=False)


@view.register
def _new_token(new: NewToken, screen: Screen) -> None:
    view(TokenList((new.token,)), screen)
    screen.out.print("\nIt is shown only once:")
    screen.out.print(new.text, highlight=False, markup=False, soft_wrap=True)
    if new.token.is_webhook:
        path = f"/v1/webhooks/{new.token.public_id}"
        screen.out.print(f"\nRequests go to {path}", highlight=False)


@view.register
def _tokens(result: TokenList, screen: Screen) -> None:
    columns = ("id", "name", "project", "account", "kind", "topics", "scopes", "limits")
    tokens = table(*columns, "created", "expires", "state")
    now = datetime.now(UTC)
    for token in result.tokens:
        tokens.add_row(*map(safe, token_cells(token)), token.state(now))
    screen.out.print(tokens)
    for public_id in result.unreadable:
        screen.err.print(f"token {safe(public_id)}: its record can't be read; it is no token")


def _facts(token: Token) -> dict[str, Any]:
    facts = merged(token, {"state": token.state(datetime.now(UTC))})
    return {name: fact for name, fact in facts.items() if name not in _SECRETS}
