"""Formats access tokens for tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.cli.encoding import rfc3339

if TYPE_CHECKING:
    from headrace.ingest.tokens.token import Token
    from headrace.settings import Rate


def token_cells(token: Token) -> tuple[str, ...]:
    """Returns the cells of a token in a table, without its state."""
    return (
        token.public_id,
        token.name,
        token.project,
        token.account,
        token.kind,
        ", ".join(token.topics),
        ", ".join(token.scopes),
        _limits(token.rate),
        rfc3339(token.created),
        rfc3339(token.expires) if token.expires else "",
    )


def _limits(rate: Rate | None) -> str:
    if rate is None:
        return ""
    limits = ((rate.events_per_second, "events/s"), (rate.bytes_per_second, "bytes/s"))
    return ", ".join(f"{limit:g} {unit}" for limit, unit in limits if limit is not None)
