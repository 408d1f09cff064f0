"""ingest: runs the HTTP service. tokens: manages its access tokens."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from headrace.cli import parameters
from headrace.cli.parameters import Duration, Text
from headrace.cli.session import Session, command, epilog
from headrace.settings import Rate

if TYPE_CHECKING:
    from headrace.ingest.views import NewToken, TokenList


@command("headrace ingest --workers 2", extra="ingest")
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    help="Processes, instead of ingest.workers in headrace.toml.",
)
@click.option("--host", help="Address, instead of ingest.host.")
@click.option("--port", type=click.IntRange(1, 65_535), help="Port, instead of ingest.port.")
@parameters.log_format
def ingest(
    session: Session,
    *,
    workers: int | None,
    host: str | None,
    port: int | None,
    log_format: str | None,
) -> None:
    """Serve topics over HTTP until Ctrl-C or SIGTERM.

    An event that is answered with 202 is on all in-sync replicas, or in the spool of its topic.
    At the signal, open requests are completed.
    """
    from headrace.ingest.server import serve
    from headrace.ingest.service import Overrides, ingest_config, reserved
    from headrace.ingest.views import Serving
    from headrace.project.services import ingest_address

    config = ingest_config(session.project, Overrides(workers, host, port))
    config = replace(config, log_format=log_format or "text")
    address = ingest_address(config.settings)
    with reserved(config):
        # Before it serves, which takes the main thread until the end.
        session.output.show(Serving(address, config.settings.workers, tuple(config.topics)))
        serve(config)


# Written out: `--help` must be fast, so it can't import the service for its enums.
SCOPES = ("write", "metrics", "describe", "read-queries", "write-queries")
KINDS = ("private", "public", "github")


@click.group(
    epilog=epilog("Example", "headrace tokens create web --project-id shop --account acme")
)
def tokens() -> None:
    """Manage access tokens of the HTTP service."""


@command("headrace tokens create web --project-id shop --account acme --expires 90d", name="create")
@click.argument("name", type=Text())
@click.option(
    "--project-id", "project", type=Text(), default="", help="Project its events belong to."
)
@click.option("--account", type=Text(), default="", help="Account; the key of its events.")
@click.option("--topic", "topics", multiple=True, help="Only this topic; can be repeated.")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(SCOPES),
    help="What it may do; can be repeated; without it, write and describe.",
)
@click.option("--expires", type=Duration(), help="Lifetime, such as 90d.")
@click.option(
    "--events-per-second",
    type=click.FloatRange(min=0, min_open=True),
    help="Its own rate limit, instead of the service's.",
)
@click.option(
    "--bytes-per-second",
    type=click.FloatRange(min=0, min_open=True),
    help="Its own rate limit, instead of the service's.",
)
@click.option(
    "--kind",
    type=click.Choice(KINDS),
    default="private",
    show_default=True,
    help="public: a key that may stand in a web page. github: a webhook that GitHub signs.",
)
@click.option("--wait", is_flag=True, help="Return when the service on this host accepts it.")
def create(  # noqa: PLR0913 - one for each option
    session: Session,
    name: str,
    *,
    project: str,
    account: str,
    topics: tuple[str, ...],
    scopes: tuple[str, ...],
    expires: timedelta | None,
    events_per_second: float | None,
    bytes_per_second: float | None,
    kind: str,
    wait: bool,
) -> None:
    """Create a token. Its text is shown only once."""
    from headrace.ingest.tokens.operations import (
        TokenSpec,
        create_token,
        namesakes,
        wait_until_known,
    )
    from headrace.ingest.tokens.token import TokenKind
    from headrace.ingest.views import NewToken

    limited = events_per_second is not None or bytes_per_second is not None
    rate = Rate(events_per_second, bytes_per_second) if limited else None
    for topic in topics:
        if topic not in session.project.topics:
            known = ", ".join(session.project.topics)
            raise click.BadParameter(f"no topic {topic!r}; declared: {known}")
    spec = TokenSpec(name, project, account, topics, expires, rate, scopes, TokenKind(kind))
    earlier = namesakes(session.settings, name)
    token, text = create_token(session.settings, spec)
    # Before all that may fail: the text is stored nowhere else.
    session.output.show(NewToken(token, text))
    if earlier:
        session.output.warn(f"other tokens have the name {name!r}: {', '.join(earlier)}")
    if wait:
        wait_until_known(session.settings, token, text)


@command("headrace tokens list --json", name="list")
def list_(session: Session) -> TokenList:
    """Show every token, without its secret."""
    from headrace.ingest.tokens.operations import list_tokens
    from headrace.ingest.views import TokenList

    tokens, unreadable = list_tokens(session.settings)
    return TokenList(tuple(tokens), tuple(unreadable))


@command("headrace tokens rotate 3x8Jq0aLmN2b --overlap 1h")
@click.argument("public_id")
@click.option("--overlap", type=Duration(), help="How long the former secret stays valid.")
def rotate(session: Session, public_id: str, *, overlap: timedelta | None) -> NewToken:
    """Give a token a new secret. The former one expires within seconds, or after --overlap."""
    from headrace.ingest.tokens.operations import rotate_token
    from headrace.ingest.views import NewToken

    return NewToken(*rotate_token(session.settings, public_id, overlap))


@command("headrace tokens revoke 3x8Jq0aLmN2b")
@click.argument("public_id")
def revoke(session: Session, public_id: str) -> TokenList:
    """Revoke a token for good, within seconds. Does nothing if it is revoked already."""
    from headrace.ingest.tokens.operations import revoke_token
    from headrace.ingest.views import TokenList

    return TokenList((revoke_token(session.settings, public_id),))


for subcommand in (rotate, revoke):
    # An id may begin with a dash, and hold an h: then it is no option.
    subcommand.context_settings.update(ignore_unknown_options=True, help_option_names=["--help"])
for subcommand in (create, list_, rotate, revoke):
    tokens.add_command(subcommand)
