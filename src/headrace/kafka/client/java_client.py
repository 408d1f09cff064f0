"""The configuration of a cluster's clients, in the words of Kafka's Java client.

Spark's own source and sink are Java clients. Files are read here: executors need not have them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from headrace.kafka.client.clients import READER, WRITER, ClientConfig, set_for
from headrace.settings import JAVA_READING, JAVA_WRITING

_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
_OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
_OAUTH_CALLBACK = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
_SAME = ("bootstrap.servers", "security.protocol", "client.id", "client.rack")


def java_config(config: ClientConfig) -> dict[str, str]:
    """Returns the address, the encryption and the login of a cluster.

    Args:
        config: librdkafka's settings, secrets revealed. Settings of ``[kafka.client]`` that tune
            librdkafka mean nothing to other clients, and are left out.

    Raises:
        OSError: if a certificate or a key can't be read.
    """
    java = {name: config[name] for name in _SAME if name in config}
    return java | _encryption(config) | _login(config)


def java_reader(config: ClientConfig) -> dict[str, str]:
    """Returns what users set for consumers of records, as far as Kafka's Java client has it."""
    return _in_java(set_for(READER, config), JAVA_READING)


def java_writer(config: ClientConfig) -> dict[str, str]:
    """Returns what users set for producers of records, as far as Kafka's Java client has it."""
    return _in_java(set_for(WRITER, config), JAVA_WRITING)


def _in_java(own: Mapping[str, str], names: Mapping[str, str]) -> dict[str, str]:
    return {java: own[name] for name, java in names.items() if name in own}


def _encryption(config: ClientConfig) -> dict[str, str]:
    java: dict[str, str] = {}
    if ca := config.get("ssl.ca.location"):
        java["ssl.truststore.type"] = "PEM"
        java["ssl.truststore.certificates"] = Path(ca).read_text()
    if certificate := config.get("ssl.certificate.location"):
        java["ssl.keystore.type"] = "PEM"
        java["ssl.keystore.certificate.chain"] = Path(certificate).read_text()
        java["ssl.keystore.key"] = Path(config["ssl.key.location"]).read_text()
    if password := config.get("ssl.key.password"):
        java["ssl.key.password"] = password
    return java


def _login(config: ClientConfig) -> dict[str, str]:
    mechanism = config.get("sasl.mechanism", "")
    if not mechanism:
        return {}
    if mechanism == "OAUTHBEARER":
        return {"sasl.mechanism": mechanism} | _token(config)
    module = _PLAIN if mechanism == "PLAIN" else _SCRAM
    login = {"username": config["sasl.username"], "password": config["sasl.password"]}
    return {"sasl.mechanism": mechanism, "sasl.jaas.config": _jaas(module, login)}


def _token(config: ClientConfig) -> dict[str, str]:
    login = {
        "clientId": config["sasl.oauthbearer.client.id"],
        "clientSecret": config["sasl.oauthbearer.client.secret"],
    }
    if scope := config.get("sasl.oauthbearer.scope"):
        login["scope"] = scope
    for pair in filter(None, config.get("sasl.oauthbearer.extensions", "").split(",")):
        name, _, value = pair.partition("=")
        login[f"extension_{name}"] = value
    return {
        "sasl.login.callback.handler.class": _OAUTH_CALLBACK,
        "sasl.oauthbearer.token.endpoint.url": config["sasl.oauthbearer.token.endpoint.url"],
        "sasl.jaas.config": _jaas(_OAUTH, login),
    }


def _jaas(module: str, options: dict[str, str]) -> str:
    quoted = (f"{name}={_quoted(value)}" for name, value in options.items())
    return f"{module} required {' '.join(quoted)};"


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
