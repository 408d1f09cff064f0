"""A REST catalog whose server may accept requests and never answer."""

from __future__ import annotations

import functools
from typing import Any

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
        timed: Any = session
        timed.request = functools.partial(session.request, timeout=self.timeout_seconds)
        return session
