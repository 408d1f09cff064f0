"""``[s3]`` of headrace.toml: the server of a lake at ``s3://``, and who logs in."""

from __future__ import annotations

import re

from headrace.settings.document import Table
from headrace.settings.model import S3Settings

_ENDPOINT = re.compile(r"https?://[^\s/?#@]+/?")
_HTTP = "http://"


def s3_settings(s3: Table) -> S3Settings:
    """Reads ``[s3]``; reports what is wrong with it."""
    settings = S3Settings(
        endpoint=_endpoint(s3),
        region=s3.text("region"),
        allow_http=s3.boolean("allow_http", default=False),
        access_key_id=s3.text("access_key_id"),
        secret_access_key=s3.secret("secret_access_key"),
    )
    if settings.endpoint.startswith(_HTTP) and not settings.allow_http:
        s3.report(
            "endpoint",
            f"s3.endpoint {settings.endpoint} is not encrypted",
            "https://, or allow_http = true",
        )
    if bool(settings.access_key_id) != (settings.secret_access_key is not None):
        s3.report(
            "access_key_id",
            "[s3] has one of access_key_id and secret_access_key",
            "both, or neither: then AWS's environment variables or the machine's role are used",
        )
    return settings


def _endpoint(s3: Table) -> str:
    endpoint = s3.text("endpoint")
    if endpoint and not _ENDPOINT.fullmatch(endpoint):
        s3.report("endpoint", f"s3.endpoint is {endpoint!r}", "https://host or https://host:port")
    return endpoint.rstrip("/")
