"""A cluster of the user's own with TLS and SCRAM, reached through a project file."""

from __future__ import annotations

import subprocess
from pathlib import Path
from textwrap import dedent

import pytest
from confluent_kafka.admin import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from headrace.control.plan import apply_plan
from headrace.control.project import load_project
from headrace.control.services import broker_config
from headrace.errors import BrokerUnreachableError
from headrace.kafka import client
from headrace.runtime.ports import free_ports
from headrace.settings import KafkaSettings, Settings, load_settings

USER, PASSWORD = "ads", "correct horse"


@pytest.fixture(scope="module")
def certificates(java, tmp_path_factory) -> Path:
    """A folder with the broker's key store and, as PEM, the certificate that it shows."""
    folder = tmp_path_factory.mktemp("certificates")
    keytool, store = java.home / "bin" / "keytool", folder / "broker.p12"
    common = ["-keystore", store, "-storetype", "PKCS12", "-storepass", "changeit"]
    names = ["-dname", "CN=127.0.0.1", "-ext", "SAN=IP:127.0.0.1"]
    key = ["-genkeypair", "-alias", "broker", "-keyalg", "RSA", "-validity", "2", *names]
    subprocess.run([keytool, *key, *common], check=True, capture_output=True)
    export = ["-exportcert", "-rfc", "-alias", "broker", "-file", folder / "ca.pem"]
    subprocess.run([keytool, *export, *common], check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def secured(start_cluster, certificates) -> str:
    """Address of a listener that wants TLS and SCRAM, and knows one user."""
    plain, safe, controller = free_ports(3)
    running = start_cluster(
        ports=(plain,),
        config={
            "listeners": (
                f"PLAINTEXT://127.0.0.1:{plain},SAFE://127.0.0.1:{safe},"
                f"CONTROLLER://127.0.0.1:{controller}"
            ),
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{plain},SAFE://127.0.0.1:{safe}",
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SAFE:SASL_SSL"
            ),
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.safe.scram-sha-512.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
            "ssl.keystore.location": str(certificates / "broker.p12"),
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.password": "changeit",
        },
    )
    credentials = UserScramCredentialUpsertion(
        USER, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), PASSWORD.encode()
    )
    admin = client.admin(client.client_config(KafkaSettings(), running.bootstrap_servers))
    admin.alter_user_scram_credentials([credentials])[USER].result()
    return f"127.0.0.1:{safe}"


@pytest.fixture
def project(secured, certificates, tmp_path):
    """Settings of a project on that cluster; ``password`` is what its environment holds."""

    def write(password: str) -> Settings:
        (tmp_path / "headrace.toml").write_text(
            dedent(f"""\
                [project]
                name = "ads"
                modules = ["flow"]
                [kafka]
                bootstrap_servers = "{secured}"
                security_protocol = "SASL_SSL"
                ssl_ca_file = "{certificates / "ca.pem"}"
                sasl_mechanism = "SCRAM-SHA-512"
                sasl_username = "{USER}"
                sasl_password = {{ env = "ADS_PASSWORD" }}
                """)
        )
        return load_settings(tmp_path, {"ADS_PASSWORD": password})

    return write


def test_topics_are_applied_and_offsets_committed_over_tls_with_scram(project, topic):
    settings, name = project(PASSWORD), topic()
    (settings.root / "flow.py").write_text(f"import headrace\nt = headrace.Topic({name!r})\n")
    apply_plan(load_project(settings))
    config = broker_config(settings)
    live = client.describe(config, [name])[name]
    client.commit_offsets(config, "g", dict.fromkeys(live.all_partitions, 0))
    assert client.group_offsets(config, "g", live.all_partitions) == {live.all_partitions[0]: 0}


def test_a_wrong_password_is_told_from_a_broker_that_is_down(project, monkeypatch):
    monkeypatch.setattr(client, "REQUEST_TIMEOUT_SECONDS", 5.0)
    config = broker_config(project("wrong"))
    with pytest.raises(BrokerUnreachableError, match=r"(?i)authentication failed") as raised:
        client.topic_ids(config, ["clicks"])
    assert "wrong" not in str(raised.value)
