"""``[s3]`` of headrace.toml: the server of a lake at ``s3://``, and who logs in.

Credentials come from one place whole: from ``[s3]``, or from where AWS's clients find them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from headrace.settings.document import Table
from headrace.settings.model import S3Settings

_ENDPOINT = re.compile(r"https?://[^\s/?#@]+/?")
_HTTP = "http://"
# The client takes what its options leave out from any of these.
_TOKEN_VARIABLES = ("AWS_SESSION_TOKEN", "AWS_TOKEN")


def s3_settings(s3: Table, environ: Mapping[str, str]) -> S3Settings:
    """Reads ``[s3]``; reports what is wrong with it."""
    settings = S3Settings(
        endpoint=_endpoint(s3),
        region=s3.text("region"),
        allow_http=s3.boolean("allow_http", default=False),
        access_key_id=s3.text("access_key_id"),
        secret_access_key=s3.secret("secret_access_key"),
        session_token=s3.secret("session_token"),
    )
    if settings.endpoint.startswith(_HTTP) and not settings.allow_http:
        s3.report(
            "endpoint",
            f"s3.endpoint {settings.endpoint} is not encrypted",
            "https://, or allow_http = true",
        )
    _check_credentials(s3, settings, environ)
    return settings


def _check_credentials(s3: Table, settings: S3Settings, environ: Mapping[str, str]) -> None:
    if bool(settings.access_key_id) != (settings.secret_access_key is not None):
        s3.report(
            "access_key_id",
            "[s3] has one of access_key_id and secret_access_key",
            "both, or neither: then AWS's environment variables or the machine's role are used",
        )
    elif settings.session_token is not None and not settings.access_key_id:
        s3.report(
            "session_token",
            "[s3] has a session_token without keys",
            "access_key_id and secret_access_key that it belongs to",
        )
    elif settings.access_key_id and settings.session_token is None:
        # Neither client has a setting to send no token: AWS refuses an empty one.
        for variable in filter(environ.get, _TOKEN_VARIABLES):
            s3.report(
                "access_key_id",
                f"[s3] has keys without a session_token, and {variable} would be sent with them",
                f"session_token where the keys are temporary, else unset {variable}",
            )


def _endpoint(s3: Table) -> str:
    endpoint = s3.text("endpoint")
    if endpoint and not _ENDPOINT.fullmatch(endpoint):
        s3.report("endpoint", f"s3.endpoint is {endpoint!r}", "https://host or https://host:port")
    return endpoint.rstrip("/")
