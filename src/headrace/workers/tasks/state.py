"""What a task keeps of a record key from record to record."""

from __future__ import annotations

from typing import Any, Generic, TypeVar, overload

import msgspec

ValueT = TypeVar("ValueT")
Default = TypeVar("Default")


class KeyState(Generic[ValueT]):
    """The value that a worker keeps for the key of the record that is processed.

    What an attempt changes counts when its record is done, and is dropped when it fails. The rules
    are those of :mod:`headrace.workers.state`. To be used while the record is processed, on any
    thread, not after that.

    Args:
        value: for direct calls of a worker's function, as in tests; ``None``: there is none.
    """

    def __init__(self, value: ValueT | None = None) -> None:
        self._value = value

    @overload
    def get(self) -> ValueT | None: ...

    @overload
    def get(self, default: ValueT) -> ValueT: ...

    @overload
    def get(self, default: Default) -> ValueT | Default: ...

    def get(self, default: ValueT | Default | None = None) -> ValueT | Default | None:
        """Returns the value, or ``default`` where there is none. A change of it needs :meth:`set`.

        Raises:
            InvalidRecordError: if the record has no key.
        """
        return default if self._value is None else self._value

    def set(self, value: ValueT) -> None:
        """Keeps another value of the key.

        Raises:
            InvalidRecordError: if the record has no key.
            TypeError: if it is not of the type that the worker declares.
        """
        self._value = value

    def delete(self) -> None:
        """Keeps no value of the key any longer; harmless where there is none.

        Raises:
            InvalidRecordError: if the record has no key.
        """
        self._value = None


class StateForm:
    """Reads and writes the values of a type as JSON.

    Raises:
        TypeError: if the type can't be written as JSON and read again.
    """

    def __init__(self, type_: Any) -> None:
        msgspec.json.schema(type_)  # raises it also for classes that only a hook could decode
        self._type = type_
        self._decoder = msgspec.json.Decoder(type_)

    def encode(self, value: object) -> bytes:
        """Returns a value as JSON.

        Raises:
            TypeError: if it could not be read as the type again.
        """
        encoded = msgspec.json.encode(value)
        try:
            self._decoder.decode(encoded)
        except msgspec.ValidationError as error:
            name = getattr(self._type, "__name__", self._type)
            raise TypeError(f"{value!r} is no state of type {name}: {error}") from error
        return encoded

    def decode(self, encoded: bytes) -> Any:
        """Returns the value.

        Raises:
            msgspec.DecodeError: if it is none of the type.
        """
        return self._decoder.decode(encoded)
