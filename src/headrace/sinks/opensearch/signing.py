"""AWS Signature Version 4: who sends a request to an OpenSearch of Amazon.

https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import quote, urlsplit

from headrace.settings import Secret

_ALGORITHM = "AWS4-HMAC-SHA256"


@dataclass(frozen=True)
class AwsSigner:
    """Signs requests.

    Attributes:
        region: of the domain.
        service: ``es``, or ``aoss`` of OpenSearch Serverless.
        access_key_id: of the user or role.
        secret_access_key: of the user or role.
        session_token: of temporary credentials.
    """

    region: str
    service: str
    access_key_id: str
    secret_access_key: Secret
    session_token: Secret | None = None

    def headers(
        self, method: str, url: str, body: bytes, at: datetime, more: Mapping[str, str]
    ) -> dict[str, str]:
        """Returns the headers of a request that is sent at a time in UTC, the signature included.

        Args:
            method: of the request.
            url: with its query as it is sent: each name and value is percent-encoded.
            body: what is sent.
            at: now.
            more: headers that it has, which are signed as well.
        """
        parts, content = urlsplit(url), hashlib.sha256(body).hexdigest()
        stamp = at.strftime("%Y%m%dT%H%M%SZ")
        headers = {"host": parts.netloc, "x-amz-date": stamp, "x-amz-content-sha256": content}
        if self.session_token is not None:
            headers["x-amz-security-token"] = self.session_token.reveal()
        headers |= {name.lower(): value for name, value in more.items()}
        names = ";".join(sorted(headers))
        lines = (
            method,
            quote(parts.path or "/", safe="/~-._"),
            "&".join(sorted(parts.query.split("&"))),
            *(f"{name}:{headers[name].strip()}" for name in sorted(headers)),
            "",
            names,
            content,
        )
        scope = f"{stamp[:8]}/{self.region}/{self.service}/aws4_request"
        request = hashlib.sha256("\n".join(lines).encode()).hexdigest()
        text = f"{_ALGORITHM}\n{stamp}\n{scope}\n{request}"
        key = f"AWS4{self.secret_access_key.reveal()}".encode()
        for part in (*scope.split("/"), text):
            key = hmac.digest(key, part.encode(), "sha256")
        signature = key.hex()
        credential = f"Credential={self.access_key_id}/{scope}"
        headers["authorization"] = (
            f"{_ALGORITHM} {credential}, SignedHeaders={names}, Signature={signature}"
        )
        return headers
