"""What ``[sinks.lake]`` of headrace.toml may say of the catalog of Iceberg tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from headrace.model.fault import Fault

if TYPE_CHECKING:
    from headrace.settings import Secret

CATALOGS = ("sql", "rest", "glue", "hive")
"""Kinds of catalogs; the first by default."""

_OWN = ("catalog", "name")
_BELOW = {
    "": "uri warehouse location",
    "s3": "access-key-id anonymous connect-timeout endpoint force-virtual-addressing profile-name "
    "proxy-uri region request-timeout resolve-region retry-strategy-impl role-arn "
    "role-session-name secret-access-key server-side-encryption session-token signer "
    "signer.endpoint signer.uri sse-kms-key-id",
    "client": "access-key-id profile-name region role-arn role-session-name secret-access-key "
    "session-token",
}
_OF_CATALOG = {
    "sql": {"": "echo init_catalog_tables pool_pre_ping schema_version"},
    "rest": {
        "": "audience credential namespace-separator oauth2-server-uri prefix resource "
        "rest-page-size scan-planning-mode scope snapshot-loading-mode token "
        "view-endpoints-supported",
        "rest": "sigv4-enabled signing-name signing-region sigv4.max-retries",
    },
    "glue": {
        "glue": "access-key-id endpoint id max-retries profile-name region retry-mode "
        "secret-access-key session-token skip-archive"
    },
    "hive": {
        "": "lock-check-max-wait-time lock-check-min-wait-time lock-check-retries",
        "hive": "hive2-compatible kerberos-authentication kerberos-service-name",
    },
}
_HEADER = "header."  # of REST requests, by any name


def known_settings(catalog: str) -> frozenset[str]:
    """Returns the keys that a kind of catalog takes, those of pyiceberg included."""
    tables = (_BELOW, _OF_CATALOG[catalog])
    names = [
        f"{prefix}.{name}" if prefix else name
        for table in tables
        for prefix, listed in table.items()
        for name in listed.split()
    ]
    return frozenset({*_OWN, *names})


def settings_faults(label: str, namespace: str, settings: Mapping[str, Secret]) -> Iterator[Fault]:
    """Yields what is wrong with the settings, for the sink with a label and a namespace."""
    kind = settings["catalog"].reveal() if "catalog" in settings else CATALOGS[0]
    if kind not in CATALOGS:
        yield Fault(f"catalog in [sinks.lake] is {kind!r}", f"one of {', '.join(CATALOGS)}")
        return
    if kind == "rest" and "uri" not in settings:
        message = f"{label} needs the setting 'uri': its catalog is a REST server"
        yield Fault(message, '[sinks.lake] uri = "https://..." in headrace.toml')
    if kind != "rest" and "." in namespace:
        message = f"{label}: namespace {namespace!r} has levels, and catalog {kind!r} takes one"
        yield Fault(message, "a name without '.', or catalog = \"rest\" in [sinks.lake]")
    known = known_settings(kind)
    for name in settings:
        if name not in known and not (kind == "rest" and name.startswith(_HEADER)):
            message = f"[sinks.lake] has the key {name!r}, which catalog {kind!r} does not take"
            yield Fault(message, f"one of {', '.join(sorted(known))}")
