import asyncio

import pytest
from tests.unit.ingest.application import Asked


@pytest.fixture
def make(tmp_path):
    """Makes applications with one token each."""
    made = []
    with asyncio.Runner() as runner:

        def application(*settings, **changes):
            made.append(Asked(runner, tmp_path, *settings, **changes))
            return made[-1]

        yield application
    for asked in made:
        asked.close()
