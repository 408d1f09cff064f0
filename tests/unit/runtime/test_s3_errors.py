"""What the text of a client's error means; the servers' answers are in test_lake_s3."""

import pytest

from headrace.errors import (
    ConditionalWritesError,
    StorageAccessError,
    StorageClockError,
    StorageRegionError,
    StorageUnavailableError,
)
from headrace.storage.s3 import _named

ADDRESS = "http://127.0.0.1:9000/bucket/metadata/credential"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (f"Error performing PUT {ADDRESS} in 9s: 503 Service Unavailable", StorageUnavailableError),
        (f"{ADDRESS} 400: <Code>ExpiredToken</Code> metadata", StorageAccessError),
        (f"{ADDRESS} 403 Forbidden: <Code>SignatureDoesNotMatch</Code>", StorageAccessError),
        (f"{ADDRESS} 403 Forbidden", StorageAccessError),
        (f"{ADDRESS} 503: <Code>SlowDown</Code>", StorageUnavailableError),
        ("the credential provider was not enabled", StorageAccessError),
        (f"Error performing GET {ADDRESS}: error sending request", StorageUnavailableError),
        (f"{ADDRESS} 403 Forbidden: <Code>RequestTimeTooSkewed</Code>", StorageClockError),
        (f"{ADDRESS} 400: <Code>AuthorizationHeaderMalformed</Code>", StorageRegionError),
        (f"{ADDRESS} - Received redirect without LOCATION", StorageRegionError),
        (f"{ADDRESS} 501 Not Implemented", ConditionalWritesError),
    ],
)
def test_an_error_is_named_by_the_code_or_by_its_text_but_not_by_its_address(text, error):
    assert type(_named("s3://bucket/metadata", Exception(text))) is error
