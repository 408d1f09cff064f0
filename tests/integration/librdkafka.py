"""librdkafka's own functions, for what the client library does not offer tests."""

import ctypes
from pathlib import Path

import confluent_kafka


def library():
    """The one that the client library has loaded."""
    libraries = Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs"
    return ctypes.CDLL(str(next(libraries.glob("librdkafka*"))))


def handle(client):
    """What these functions take for a producer or consumer."""
    return ctypes.c_void_p.from_address(id(client) + object.__basicsize__)
