"""A REST catalog whose server may accept requests and never answer."""

from __future__ import annotations

import functools

import requests
from pyiceberg.catalog import rest


class RestCatalog(rest.RestCatalog):
    """pyiceberg's, which would wait without end.

    Attributes:
        timeout_seconds: to wait for the next byte of an answer.
    """

    timeout_seconds = 60.0

    def _create_session(self) -> requests.Session:
        session = super()._create_session()
        timed = functools.partial(session.request, timeout=self.timeout_seconds)
        session.request = timed  # type: ignore[method-assign]
        return session
