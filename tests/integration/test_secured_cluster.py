"""A cluster of the user's own with TLS, SCRAM and ACLs, reached through a project file."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from textwrap import dedent
from urllib.parse import parse_qs

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from tests.integration.certificates import STORE_PASSWORD, make_certificate
from tests.kafka_topics import make_topic

from headrace.errors import AuthenticationError, AuthorizationError, HeadraceError
from headrace.kafka.client import admin_requests, clients
from headrace.kafka.client.offsets import commit_offsets, group_offsets, high_watermarks, watermarks
from headrace.kafka.read.cluster import KafkaCluster
from headrace.kafka.write.failures import raise_first
from headrace.kafka.write.record import ProducerRecord
from headrace.kafka.write.sending import send_each
from headrace.links.copying.instance import CopyInstance
from headrace.links.mirror.plan import MirrorPlan
from headrace.model import OffsetRange, TopicPartition
from headrace.operations.planning.plan import apply_plan, make_plan
from headrace.project.check import load_project
from headrace.project.services import broker_config
from headrace.runtime.servers.ports import free_ports
from headrace.settings import KafkaSettings, Settings, load_settings

USER, PASSWORD = "ads", "correct horse"
SCRAM = """
sasl_mechanism = "SCRAM-SHA-512"
sasl_username = "{user}"
sasl_password = {{ env = "ADS_PASSWORD" }}
"""
OIDC = """
sasl_mechanism = "OAUTHBEARER"
[kafka.client]
client.id = "ads-by-token"
[kafka.oauth]
token_endpoint_url = "http://127.0.0.1:{user}/token"
client_id = "client of ads"
client_secret = {{ env = "ADS_PASSWORD" }}
scope = "kafka"
"""
TOPIC_RIGHTS = frozenset(
    {"READ", "WRITE", "CREATE", "DESCRIBE", "ALTER", "ALTER_CONFIGS", "DESCRIBE_CONFIGS"}
)
GROUP_RIGHTS = frozenset({"READ", "DESCRIBE"})
RIGHTS = {
    USER: (TOPIC_RIGHTS, GROUP_RIGHTS),
    "no-read": (TOPIC_RIGHTS - {"READ"}, GROUP_RIGHTS),
    "no-write": (TOPIC_RIGHTS - {"WRITE"}, GROUP_RIGHTS),
    "no-create": (TOPIC_RIGHTS - {"CREATE"}, GROUP_RIGHTS),
    "no-configs": (TOPIC_RIGHTS - {"DESCRIBE_CONFIGS", "ALTER_CONFIGS"}, GROUP_RIGHTS),
    "no-topic": (frozenset(), GROUP_RIGHTS),
    "no-group": (TOPIC_RIGHTS, frozenset()),
    "no-group-read": (TOPIC_RIGHTS, GROUP_RIGHTS - {"READ"}),
}
"""What each user may do with topics, and with groups of the prefix ``headrace.``."""
OF_IDS = dict.fromkeys(RIGHTS, frozenset({"WRITE", "DESCRIBE"})) | {"no-create": frozenset()}
"""What each may do with transactional ids of that prefix."""


@pytest.fixture(scope="module")
def certificates(tmp_path_factory) -> Path:
    """A folder with the broker's key store and, as PEM, the certificate that it shows."""
    folder = tmp_path_factory.mktemp("certificates")
    make_certificate(folder)
    return folder


@pytest.fixture(scope="module")
def secured(start_cluster, certificates) -> str:
    """Address of a listener that wants TLS and SCRAM, and knows the users of RIGHTS."""
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
            "sasl.enabled.mechanisms": "SCRAM-SHA-512,OAUTHBEARER",
            "listener.name.safe.oauthbearer.sasl.jaas.config": (
                "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
                'unsecuredLoginStringClaim_sub="broker";'
            ),
            "listener.name.safe.scram-sha-512.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "ssl.keystore.location": str(certificates / "server.p12"),
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.password": STORE_PASSWORD,
        },
    )
    admin = admin_requests.admin(clients.client_config(KafkaSettings(), running.bootstrap_servers))
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    users = [UserScramCredentialUpsertion(user, info, PASSWORD.encode()) for user in RIGHTS]
    rules = [rule for user in RIGHTS for rule in acls(user)]
    for requested in (admin.alter_user_scram_credentials(users), admin.create_acls(rules)):
        for future in requested.values():
            future.result()
    return f"127.0.0.1:{safe}"


def acls(user: str) -> list[AclBinding]:
    of_topics, of_groups = RIGHTS[user]
    resources = (
        (ResourceType.TOPIC, "*", ResourcePatternType.LITERAL, of_topics),
        (ResourceType.GROUP, "headrace.", ResourcePatternType.PREFIXED, of_groups),
        (ResourceType.TRANSACTIONAL_ID, "headrace.", ResourcePatternType.PREFIXED, OF_IDS[user]),
    )
    return [
        AclBinding(
            kind, name, pattern, f"User:{user}", "*", AclOperation[right], AclPermissionType.ALLOW
        )
        for kind, name, pattern, rights in resources
        for right in rights
    ]


@pytest.fixture
def project(secured, certificates, tmp_path):
    """Settings of a project on that cluster; ``password`` is what its environment holds."""

    def write(password: str = PASSWORD, user: str = USER, login: str = SCRAM) -> Settings:
        (tmp_path / "headrace.toml").write_text(
            dedent(f"""\
                [project]
                name = "ads"
                modules = ["flow"]
                [kafka]
                bootstrap_servers = "{secured}"
                security_protocol = "SASL_SSL"
                ssl_ca_file = "{certificates / "ca.pem"}"
                """)
            + login.format(user=user)
        )
        return load_settings(tmp_path, {"ADS_PASSWORD": password})

    return write


@pytest.fixture
def made(project, topic) -> str:
    """A topic with its dead-letter topic, of one record each."""
    name = topic()
    settings = project()
    declare(settings, name, f"{name}.dead")
    apply_plan(load_project(settings))
    record = ProducerRecord(name, None, b"{}", (), 0)
    raise_first(send_each(broker_config(settings), [record]).values())
    return name


def declare(settings: Settings, *topics: str) -> None:
    lines = [f"t{n} = headrace.Topic({name!r})" for n, name in enumerate(topics)]
    (settings.root / "flow.py").write_text("\n".join(["import headrace", *lines]))


def test_topics_are_applied_and_offsets_committed_over_tls_with_scram(project, made):
    config = broker_config(project())
    live = admin_requests.describe(config, [made])[made]
    commit_offsets(config, "headrace.g", dict.fromkeys(live.all_partitions, 0))
    found = group_offsets(config, "headrace.g", live.all_partitions)
    assert found == {live.all_partitions[0]: 0}


def read(config, topic):
    return list(KafkaCluster(config).read([OffsetRange(TopicPartition(topic, 0), 0, 1)]))


def commit(config, topic):
    commit_offsets(config, "headrace.g", {TopicPartition(topic, 0): 0})


def fetch_offsets(config, topic):
    group_offsets(config, "headrace.g", [TopicPartition(topic, 0)])


def write(config, topic):
    raise_first(send_each(config, [ProducerRecord(topic, None, b"{}", ())]).values())


def describe(config, topic):
    admin_requests.describe(config, [topic])


@pytest.mark.parametrize(
    ("user", "act", "operation", "resource"),
    [
        ("no-read", read, "READ", "topic {}"),
        ("no-read", commit, "READ", "topic {}"),
        (
            "no-write",
            write,
            "WRITE",
            "topic {} (and, before Kafka 3.0, IDEMPOTENT_WRITE on the cluster)",
        ),
        ("no-topic", describe, "DESCRIBE", "topic {}"),
        ("no-group", fetch_offsets, "READ", "group headrace.g"),
        ("no-group", commit, "READ", "group headrace.g"),
        ("no-group-read", commit, "READ", "group headrace.g"),
    ],
)
def test_what_is_forbidden_is_named(project, made, user, act, operation, resource):
    config = broker_config(project(user=user))
    with pytest.raises(AuthorizationError) as raised:
        act(config, made)
    error = raised.value
    named = (error.operation, error.resource, error.principal)
    assert named == (operation, resource.format(made), f"User:{user}")


@pytest.mark.parametrize(
    ("user", "operation", "resource"),
    [
        ("no-write", "WRITE", "topic {topic}"),
        ("no-create", "WRITE", "transactional id {id}"),
        ("no-group", "READ", "group {group}"),
    ],
)
def test_a_mirror_names_what_is_forbidden_at_its_target(
    project, made, broker, user, operation, resource
):
    source = clients.client_config(KafkaSettings(), broker.bootstrap_servers)
    make_topic(source, made)
    raise_first(send_each(source, [ProducerRecord(made, None, b"{}", (), 0)]).values())
    target, group = broker_config(project(user=user)), f"headrace.mirror.{made}"
    link = MirrorPlan("m", group, "waw", "central", source, target, {made: made})
    instance = CopyInstance(link)
    with pytest.raises(AuthorizationError) as raised:
        instance.run(lambda _: None)
    error = raised.value
    expected = resource.format(topic=made, group=group, id=instance._id)
    named = (error.operation, error.resource, error.principal)
    assert named == (operation, f"{expected} at site central", f"User:{user}")


def test_a_dispatcher_logs_in_at_both_sites(project, made):
    """Spark's source and sink are Java clients, which have other names for all of it."""
    settings = project()
    toml = settings.root / "headrace.toml"
    own = toml.read_text().partition("[kafka]")[2]
    toml.write_text(f"{toml.read_text()}\n[sites.other.kafka]{own}")
    away = f"{made}.away"
    declare(settings, made, away)
    with (settings.root / "flow.py").open("a") as flow:
        flow.write(f"\nd = headrace.Dispatcher('d', t0, {{'other': {away!r}}})\n")
    for command in (["apply"], ["dispatcher", "run", "d", "--once"]):
        subprocess.run(
            [sys.executable, "-m", "headrace.cli", *command],
            cwd=settings.root,
            env=os.environ | {"ADS_PASSWORD": PASSWORD},
            check=True,
        )
    place = TopicPartition(away, 0)
    assert high_watermarks(broker_config(settings), [place]) == {place: 1}


def test_a_topic_that_may_not_be_created_is_named(project, topic):
    settings, name = project(user="no-create"), topic()
    declare(settings, name)
    with pytest.raises(AuthorizationError, match=f"'CREATE', resource 'topic {name}'"):
        apply_plan(load_project(settings))


def test_settings_of_a_topic_that_may_not_be_seen_are_named(project, made):
    settings = project(user="no-configs")
    with pytest.raises(AuthorizationError, match=f"'DESCRIBE_CONFIGS', resource 'topic {made}"):
        apply_plan(load_project(settings))


class TokenServer(BaseHTTPRequestHandler):
    """Gives an unsigned token for ``ads`` to the client whose secret is right."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        secret = f"client of ads:{PASSWORD}".encode()
        basic = f"Basic {base64.b64encode(secret).decode()}"
        asked = parse_qs(body) == {"grant_type": ["client_credentials"], "scope": ["kafka"]}
        allowed = asked and self.headers["Authorization"] == basic
        answer = {"access_token": unsigned_token(USER)} if allowed else {"error": "invalid_client"}
        self.send_response(200 if allowed else 401)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, *_: object) -> None:
        """Says nothing."""


def unsigned_token(subject: str) -> str:
    now = int(time.time())
    claims = {"sub": subject, "iat": now, "exp": now + 300, "scope": "kafka"}
    parts = [json.dumps(part).encode() for part in ({"alg": "none"}, claims)]
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts) + "."


@pytest.fixture(scope="module")
def token_server() -> Iterator[str]:
    """The port of an OpenID Connect server's token endpoint."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), TokenServer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield str(server.server_port)
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_token_of_an_openid_connect_server_logs_in(project, made, token_server):
    config = broker_config(project(user=token_server, login=OIDC))
    write(config, made)
    assert watermarks(config, [TopicPartition(made, 0)]) == {TopicPartition(made, 0): (0, 2)}


def test_a_token_server_that_refuses_is_named(project, token_server, monkeypatch):
    monkeypatch.setattr(admin_requests, "REQUEST_TIMEOUT_SECONDS", 5.0)
    config = broker_config(project("wrong", user=token_server, login=OIDC))
    with pytest.raises(HeadraceError, match=r"OAUTHBEARER token|401") as raised:
        admin_requests.topic_ids(config, ["clicks"])
    assert "wrong" not in str(raised.value)


def test_a_wrong_password_is_said_and_no_plan_is_made(project):
    settings = project("wrong")
    declare(settings, "clicks")
    with pytest.raises(AuthenticationError, match=r"(?i)authentication failed") as raised:
        make_plan(load_project(settings))
    assert "'wrong'" not in str(raised.value)
    assert raised.value.principal == f"User:{USER}"
