"""What Kafka's Java client is told of a cluster."""

import pytest

from headrace.kafka.client.java_client import java_config

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def test_a_plain_cluster_has_an_address_alone():
    config = {"bootstrap.servers": "a:1", "partitioner": "murmur2_random", "linger.ms": "5"}
    assert java_config(config) == {"bootstrap.servers": "a:1"}


@pytest.mark.parametrize(
    ("mechanism", "module"),
    [("PLAIN", "plain.PlainLoginModule"), ("SCRAM-SHA-512", "scram.ScramLoginModule")],
)
def test_a_password_is_quoted_as_jaas_wants_it(mechanism, module):
    config = {
        "bootstrap.servers": "a:1",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.username": "ann",
        "sasl.password": 'a"b\\c;d',
    }
    assert java_config(config) == {
        "bootstrap.servers": "a:1",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": (
            f"org.apache.kafka.common.security.{module} required "
            'username="ann" password="a\\"b\\\\c;d";'
        ),
    }


def test_certificates_and_keys_are_passed_by_content(tmp_path):
    files = {}
    for name in ("ca", "certificate", "key"):
        (tmp_path / name).write_text(f"the {name}")
        files[f"ssl.{name}.location"] = str(tmp_path / name)
    assert java_config(files | {"ssl.key.password": "p"}) == {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": "the ca",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "the certificate",
        "ssl.keystore.key": "the key",
        "ssl.key.password": "p",
    }


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(OSError, match="missing"):
        java_config({"ssl.ca.location": str(tmp_path / "missing")})


def test_a_login_by_token_names_the_endpoint_and_the_client():
    config = {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": "me",
        "sasl.oauthbearer.client.secret": "s",
        "sasl.oauthbearer.token.endpoint.url": "https://idp/token",
        "sasl.oauthbearer.scope": "kafka",
        "sasl.oauthbearer.extensions": "a=1,b=2",
    }
    java = java_config(config)
    assert java["sasl.oauthbearer.token.endpoint.url"] == "https://idp/token"
    assert java["sasl.jaas.config"].endswith(
        'required clientId="me" clientSecret="s" scope="kafka" extension_a="1" extension_b="2";'
    )
    assert java["sasl.login.callback.handler.class"].endswith("OAuthBearerLoginCallbackHandler")
