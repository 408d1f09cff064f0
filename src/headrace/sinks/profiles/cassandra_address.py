"""The address of a keyspace of profiles in Cassandra, and its options."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote

from headrace.errors import ProfileStoreError
from headrace.settings import Secret

if TYPE_CHECKING:
    import ssl

NAME = "Cassandra"
TABLE = "headrace_profiles"
PORT = 9042
_MAX_PORT = 65_535
_URL = re.compile(
    r"cassandra://(?:(?P<user>[^:@/]+):(?P<password>[^@/]*)@)?(?P<hosts>[^@/?#]+)"
    r"(?:/(?P<keyspace>\w{0,48}))?(?:\?(?P<options>[^#]*))?",
    re.ASCII,
)
_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\[\]:]+)(?::(\d{1,5}))?")
# A profile is read and written at one level: ANY is for writes alone, and with the serial ones a
# statement would need a condition.
_LEVELS = "ONE|TWO|THREE|QUORUM|ALL|LOCAL_QUORUM|EACH_QUORUM|LOCAL_ONE"
_SWITCH = "true|false"
_OPTIONS = {
    "consistency": (_LEVELS, "LOCAL_QUORUM"),
    "timeout": (r"(?!0*(\.0*)?$)\d{1,4}(\.\d+)?", "30"),
    "datacenter": (r"[^?&#]+", "dc1"),
    "ssl": (_SWITCH, "true"),
    "ssl_ca_file": (r".+", "/etc/cassandra-ca.pem"),
    "ssl_certificate_file": (r".+", "/etc/client.pem"),
    "ssl_key_file": (r".+", "/etc/client.key"),
    "ssl_check_hostname": (_SWITCH, "false"),
}
"""Options: a pattern of their values, and an example."""


@dataclass(frozen=True)
class CassandraAddress:
    """What the URL of a store says.

    Attributes:
        hosts: nodes to ask first, with their ports; those of the cluster follow from them.
        keyspace: that has the table.
        user: role to log in with; empty: without a login.
        password: of the role.
        options: by name, as in the URL.
    """

    hosts: tuple[tuple[str, int], ...]
    keyspace: str
    user: str = ""
    password: Secret = field(default_factory=lambda: Secret(""))
    options: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, url: Secret) -> CassandraAddress:
        """Reads ``cassandra://[user:password@]host[:port][,host...]/keyspace[?option=...]``.

        Raises:
            ProfileStoreError: if the URL is none; the message does not show it.
        """
        match = _URL.fullmatch(url.reveal())
        hosts = [_HOST.fullmatch(host) for host in match["hosts"].split(",")] if match else []
        if not match or not all(hosts):
            form = "cassandra://USER:PASSWORD@HOST:PORT,HOST:PORT/KEYSPACE"
            raise ProfileStoreError(NAME, f"the URL is not valid; its form is {form}")
        if not match["keyspace"]:
            raise ProfileStoreError(
                NAME, "the URL names no keyspace; add one, as in cassandra://host/site"
            )
        nodes = tuple((host[1].strip("[]"), int(host[2] or PORT)) for host in hosts if host)
        if wrong := [port for _, port in nodes if not 0 < port <= _MAX_PORT]:
            raise ProfileStoreError(NAME, f"there is no port {wrong[0]}: ports end at {_MAX_PORT}")
        return cls(
            nodes,
            match["keyspace"],
            unquote(match["user"] or ""),
            Secret(unquote(match["password"] or "")),
            _options(match["options"] or ""),
        )

    def __str__(self) -> str:
        hosts = ",".join(f"{host}:{port}" for host, port in self.hosts)
        return f"{NAME} {hosts}/{self.keyspace}"

    @property
    def table(self) -> str:
        """The table's name in CQL."""
        return f'"{self.keyspace}".{TABLE}'

    @property
    def consistency(self) -> str:
        """Level of reads and writes."""
        return self.options.get("consistency", "LOCAL_QUORUM")

    @property
    def timeout_seconds(self) -> float:
        """How long an answer is waited for."""
        return float(self.options.get("timeout", "30"))

    @property
    def datacenter(self) -> str:
        """Whose nodes are asked; empty: that of the first node that answers."""
        return self.options.get("datacenter", "")

    def ssl_context(self) -> ssl.SSLContext | None:
        """Returns what TLS needs; None: connections are not encrypted.

        Raises:
            ProfileStoreError: if a file is missing on this machine, or is not PEM.
        """
        import ssl

        if self.options.get("ssl") != "true":
            return None
        context = ssl.create_default_context()
        context.check_hostname = self.options.get("ssl_check_hostname") != "false"
        name = "ssl_ca_file"
        try:
            if name in self.options:
                context.load_verify_locations(self.options[name])
            name = "ssl_certificate_file"
            if name in self.options:
                context.load_cert_chain(self.options[name], self.options.get("ssl_key_file"))
        except OSError as error:
            reason = f"{name}={self.options[name]} in the URL can't be used here: {error}"
            raise ProfileStoreError(str(self), reason) from error
        return context


def _options(text: str) -> dict[str, str]:
    """Returns options by name.

    Raises:
        ProfileStoreError: if an option is unknown, or its value is not valid.
    """
    options = dict(parse_qsl(text, keep_blank_values=True))
    for name, value in options.items():
        if name not in _OPTIONS:
            reason = f"option {name!r} of the URL is unknown; there are {', '.join(_OPTIONS)}"
            raise ProfileStoreError(NAME, reason)
        pattern, example = _OPTIONS[name]
        if not re.fullmatch(pattern, value, re.ASCII):
            message = f"option {name!r} of the URL has a value that is not valid"
            raise ProfileStoreError(NAME, f"{message}; an example is {name}={example}")
        if name.startswith("ssl_") and options.get("ssl") != "true":
            raise ProfileStoreError(NAME, f"option {name!r} of the URL needs ssl=true")
    if "ssl_key_file" in options and "ssl_certificate_file" not in options:
        raise ProfileStoreError(NAME, "option 'ssl_key_file' of the URL needs ssl_certificate_file")
    return options
