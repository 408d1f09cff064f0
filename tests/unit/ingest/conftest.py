import asyncio
import functools

import pytest
from tests.unit.ingest.application import Asked


@pytest.fixture
def make(tmp_path):
    """Makes applications with one token each."""
    with asyncio.Runner() as runner:
        yield functools.partial(Asked, runner, tmp_path)
