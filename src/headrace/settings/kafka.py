"""``[kafka]`` of headrace.toml: which cluster, how to log in, and what is passed to the client.

``[sites.NAME.kafka]`` says the same of another site.
"""

from __future__ import annotations

import re
from pathlib import Path

from headrace.settings.document import Table
from headrace.settings.kafka_clients import cluster_clients
from headrace.settings.model import EmbeddedKafka, KafkaSettings

# As many as replicas of a topic: more would prove nothing, and each takes a gigabyte.
MAX_BROKERS = 3

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
# Without GSSAPI: the wheel of confluent-kafka is built without Kerberos.
_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN", "OAUTHBEARER")
_FILES = {
    "ssl_ca_file": "ssl.ca.location",
    "ssl_certificate_file": "ssl.certificate.location",
    "ssl_key_file": "ssl.key.location",
}
_SECRETS = {"ssl_key_password": "ssl.key.password", "sasl_password": "sasl.password"}
_OAUTH = {
    "token_endpoint_url": "sasl.oauthbearer.token.endpoint.url",
    "client_id": "sasl.oauthbearer.client.id",
    "scope": "sasl.oauthbearer.scope",
    "extensions": "sasl.oauthbearer.extensions",
}
_SERVER = re.compile(r"(?:[A-Z_]+://)?(?:\[[0-9A-Fa-f:.%]+\]|[^\s:,/]+):\d{1,5}")


def kafka_settings(kafka: Table, root: Path) -> KafkaSettings:
    """What such a table says; reports what is wrong with it."""
    oauth = kafka.table("oauth")
    secrets = {librdkafka: kafka.secret(name) for name, librdkafka in _SECRETS.items()}
    secrets["sasl.oauthbearer.client.secret"] = oauth.secret("client_secret")
    clients = cluster_clients(kafka)
    settings = KafkaSettings(
        bootstrap_servers=_servers(kafka),
        security=_security(kafka, root) | _oauth(oauth, root),
        secrets={name: secret for name, secret in secrets.items() if secret is not None},
        client=clients.client,
        consumer=clients.consumer,
        producer=clients.producer,
        embedded=_embedded(kafka.table("embedded")),
    )
    _consistent(kafka, oauth, settings)
    return settings


def _servers(kafka: Table) -> str:
    servers = [
        server.strip() for server in kafka.text("bootstrap_servers").split(",") if server.strip()
    ]
    for server in servers:
        if not _SERVER.fullmatch(server):
            kafka.report("bootstrap_servers", f"{server!r} is not host:port")
    return ",".join(servers)


def _security(kafka: Table, root: Path) -> dict[str, str]:
    texts = {
        "security.protocol": kafka.choice("security_protocol", _PROTOCOLS),
        "sasl.mechanism": _mechanism(kafka),
        "sasl.username": kafka.text("sasl_username"),
    }
    texts |= {librdkafka: _file(kafka, name, root) for name, librdkafka in _FILES.items()}
    return {name: value for name, value in texts.items() if value}


def _mechanism(kafka: Table) -> str:
    if kafka.text("sasl_mechanism") == "GSSAPI":
        remedy = f"Kerberos is not supported; one of {', '.join(_MECHANISMS)}"
        kafka.report("sasl_mechanism", f"{kafka.label('sasl_mechanism')} is 'GSSAPI'", remedy)
        return ""
    return kafka.choice("sasl_mechanism", _MECHANISMS)


def _oauth(oauth: Table, root: Path) -> dict[str, str]:
    texts = {name: oauth.text(key) for key, name in _OAUTH.items()}
    texts["https.ca.location"] = _file(oauth, "ca_file", root)
    url = texts["sasl.oauthbearer.token.endpoint.url"]
    if url and not url.startswith(("https://", "http://")):
        label = oauth.label("token_endpoint_url")
        oauth.report("token_endpoint_url", f"{label} is {url!r}", "a URL")
    # By default librdkafka asks the application for tokens, by a callback that there is not.
    method = {"sasl.oauthbearer.method": "oidc"} if url else {}
    return method | {name: value for name, value in texts.items() if value}


def _file(kafka: Table, name: str, root: Path) -> str:
    where = kafka.text(name)
    if not where:
        return ""
    file = (root / where).resolve()
    if not file.is_file():
        kafka.report(name, f"{kafka.label(name)}: there is no file {where}")
    return str(file)


def _consistent(kafka: Table, oauth: Table, settings: KafkaSettings) -> None:
    protocol = settings.security.get("security.protocol", "PLAINTEXT")
    # The client would report a failed handshake, and not that the broker is the embedded one.
    if protocol != "PLAINTEXT" and "bootstrap_servers" not in kafka:
        kafka.report(
            "security_protocol",
            f"{kafka.label('security_protocol')} is {protocol}, but the embedded broker speaks "
            "PLAINTEXT",
            "set bootstrap_servers, or leave the security settings out",
        )
    if protocol.startswith("SASL"):
        _need_login(kafka, oauth, protocol)
    # librdkafka writes a warning to its log and connects without a login.
    elif any(name.startswith("sasl") for name in (*settings.security, *settings.secrets)):
        kafka.report(
            "sasl_mechanism",
            f"SASL settings have no effect with {kafka.label('security_protocol')} {protocol}",
            "security_protocol = SASL_SSL or SASL_PLAINTEXT",
        )


def _need_login(kafka: Table, oauth: Table, protocol: str) -> None:
    by_token = kafka.text("sasl_mechanism") == "OAUTHBEARER"
    if by_token:
        for name in ("token_endpoint_url", "client_id", "client_secret"):
            if name not in oauth:
                kafka.report("oauth", f"OAUTHBEARER needs kafka.oauth.{name}")
        return
    for name in ("sasl_mechanism", "sasl_username", "sasl_password"):
        if name not in kafka:
            kafka.report("security_protocol", f"{protocol} needs {kafka.label(name)}")


def _embedded(embedded: Table) -> EmbeddedKafka:
    settings = EmbeddedKafka(
        brokers=embedded.integer("brokers", 1, most=MAX_BROKERS),
        ports=embedded.integers("ports"),
        heap_mb=embedded.integer("heap_mb", 1024, least=256),
    )
    _check_ports(embedded, settings)
    return settings


def _check_ports(embedded: Table, settings: EmbeddedKafka) -> None:
    ports = settings.ports
    for port in ports:
        if not 0 < port < 1 << 16:
            embedded.report("ports", f"{embedded.label('ports')}: {port} is not a port")
    if ports and len(set(ports)) != settings.brokers:
        embedded.report(
            "ports",
            f"{embedded.label('ports')} names {len(set(ports))} different port(s) "
            f"for {settings.brokers} broker(s)",
            "one for each, or none at all for free ones",
        )
