"""Which server has a row, by the value of one of its columns."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from headrace.model import FieldType
from headrace.model.fault import Fault, is_a
from headrace.sinks.postgres.servers.names import name_faults

_TYPES = {FieldType.STRING: str, FieldType.LONG: int}


@dataclass(frozen=True)
class ByServer:
    """Divides the rows of a table over servers that a project names.

    ::

        Postgres("orders", server=ByServer("account", {"acme": "eu"}, otherwise="us"))

    Attributes:
        field: column of the rows: a text or an integer.
        servers: names of servers by its values.
        otherwise: of rows with another value, or none; None: they are dead letters, ``no-server``.
    """

    field: str
    servers: Mapping[str | int, str]
    otherwise: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all servers, in their order."""
        values = self.servers.values() if is_a(self.servers, Mapping) else ()
        last = () if self.otherwise is None else (self.otherwise,)
        return tuple(sorted({str(server) for server in (*values, *last)}))

    @property
    def number(self) -> int:
        """A number by which another sharding is known, from 0 to below 2**63."""
        parts = (self.field, sorted(map(repr, self.servers.items())), self.otherwise)
        digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
        return int.from_bytes(digest) >> 1

    def faults(self, columns: Mapping[str, FieldType] | None) -> Iterator[Fault]:
        """Yields what is wrong with it; values of any type may stand in its fields.

        Args:
            columns: of the rows; None: steps hide them.
        """
        if not is_a(self.field, str):
            yield Fault(f"ByServer.field is {self.field!r}", 'ByServer("account", {...})')
        elif not is_a(self.servers, Mapping) or not self.servers:
            message = f"ByServer.servers is {self.servers!r}"
            yield Fault(message, 'the name of a server by value: {"acme": "eu"}')
        else:
            for value, server in self.servers.items():
                named = "" if server is None else server
                yield from name_faults(f"ByServer.servers: that of {value!r}", named)
            yield from name_faults("ByServer.otherwise", self.otherwise)
            yield from self._value_faults(columns)

    def _value_faults(self, columns: Mapping[str, FieldType] | None) -> Iterator[Fault]:
        kinds = {type(value) for value in self.servers}
        if columns is not None and self.field not in columns:
            message = f"ByServer.field: {self.field!r} is no column of the rows"
            yield Fault(message, f"columns: {', '.join(columns)}")
        elif columns is not None and columns[self.field] not in _TYPES:
            message = f"ByServer.field: {self.field!r} is {columns[self.field].value}"
            yield Fault(message, "a str or an int")
        elif columns is not None and kinds != {_TYPES[columns[self.field]]}:
            message = f"ByServer.servers has other values than {self.field!r}, which is"
            yield Fault(f"{message} {columns[self.field].value}", "values of its type")
        elif kinds not in ({str}, {int}):
            message = "ByServer.servers has values that are neither all str nor all int"
            yield Fault(message, '{"acme": "eu"} or {7: "eu"}')
