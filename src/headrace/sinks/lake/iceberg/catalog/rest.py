"""A REST catalog whose server may accept requests and never answer, with proxies on the way."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import requests
from pyiceberg.catalog import rest
from pyiceberg.catalog.rest.response import ErrorResponse


class RestCatalog(rest.RestCatalog):
    """pyiceberg's, which would wait without end, and take the page of a proxy for an answer.

    Attributes:
        timeout_seconds: to wait for the next byte of an answer.
    """

    timeout_seconds = 60.0

    def _create_session(self) -> requests.Session:
        session = super()._create_session()
        answered: Any = session
        answered.request = functools.partial(_answered, session.request, self.timeout_seconds)
        return session


def _answered(
    request: Callable[..., requests.Response], timeout: float, *args: Any, **kwargs: Any
) -> requests.Response:
    """Returns the catalog's answer to a request.

    Raises:
        requests.ConnectionError: if it broke off, or is a proxy's: a page, or a 404 without the
            error of a catalog. That is no word on whether there is a table.
    """
    response = request(*args, timeout=timeout, **kwargs)
    method = response.request.method
    try:
        if response.status_code == requests.codes.not_found and method != "HEAD":
            ErrorResponse.model_validate_json(response.text)
        elif response.ok and response.content:
            response.json()
    except ValueError as error:
        reason = f"{method} {response.url}: {response.status_code} {response.text[:200]!r}"
        raise requests.ConnectionError(reason) from error
    return response
