"""Cross-origin requests of browsers: which web pages may send events and read the answers.

The CORS protocol of the Fetch standard, without cookies. A browser sends a plain POST of any page
and only keeps the answer from it; before a request with other headers it asks by a preflight.
"""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus

from headrace.ingest.http.problem import CLOSE, refused
from headrace.ingest.http.request import Answer, Header, Request
from headrace.settings import ANY_ORIGIN

# Chromium keeps no answer to a preflight for longer.
_MAX_AGE_SECONDS = 7200  # Chrome keeps a preflight no longer
_VARY: Header = (b"vary", b"origin")
_EXPOSED: Header = (
    b"access-control-expose-headers",
    b"x-request-id, retry-after, headrace-spooled, headrace-results-cut",
)
_PREFLIGHT: tuple[Header, ...] = (
    (b"access-control-allow-methods", b"GET, HEAD, POST"),
    (
        b"access-control-allow-headers",
        b"authorization, content-type, content-encoding, x-request-id",
    ),
    (b"access-control-max-age", str(_MAX_AGE_SECONDS).encode()),
    CLOSE,
)


class Cors:
    """Decides by the Origin header, which no page can forge, though any other program can."""

    def __init__(self, origins: Sequence[str]) -> None:
        self._any = ANY_ORIGIN in origins
        self._origins = frozenset(origin.encode() for origin in origins)

    def headers(self, origin: bytes) -> tuple[Header, ...]:
        """Returns the headers that let a page of an allowed origin read the answer."""
        if not self._allows(origin):
            return (_VARY,)
        return ((b"access-control-allow-origin", origin), _VARY, _EXPOSED)

    def preflight(self, request: Request) -> Answer | None:
        """Returns the answer to a preflight; ``None`` for any other request.

        It needs no token, since browsers send none with it, and says nothing of topics.

        Raises:
            RefusedRequestError: 403 for an origin that is not allowed.
        """
        if request.method != "OPTIONS" or request.origin is None:
            return None
        if b"access-control-request-method" not in request.headers:
            return None
        self.require(request.origin)
        return Answer(HTTPStatus.OK, b"", _PREFLIGHT)

    def require(self, origin: bytes | None) -> None:
        """Refuses what comes from a page of another origin; other programs send none.

        Raises:
            RefusedRequestError: 403.
        """
        if origin is not None and not self._allows(origin):
            shown = origin[:80].decode("latin-1")
            raise refused(
                HTTPStatus.FORBIDDEN,
                "origin-not-allowed",
                f"origin {shown!r} is not in `ingest.cors_origins`: its pages may not send events",
            )

    def _allows(self, origin: bytes) -> bool:
        return self._any or origin in self._origins
