"""headrace.toml: values, the environment, secrets, and every problem at its line."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from headrace.errors import ProjectError
from headrace.settings import LedgerSettings, Settings, find_project, load_settings

HEAD = '[project]\nname = "ads"\nmodules = ["flow"]\n'


@pytest.fixture
def load(tmp_path: Path):
    def settings(text: str, *, head: str = HEAD, **environ: str) -> Settings:
        (tmp_path / "headrace.toml").write_text(head + text, encoding="utf-8")
        return load_settings(tmp_path, environ)

    return settings


@pytest.fixture
def problems(load):
    """(line below HEAD, text) of every problem."""

    def find(text: str, *, head: str = HEAD, **environ: str) -> list[tuple[int, str]]:
        with pytest.raises(ProjectError) as raised:
            load(text, head=head, **environ)
        lines = head.count("\n")
        return [(one.line - lines, str(one)) for one in raised.value.problems]

    return find


def test_name_and_modules_suffice(load, tmp_path):
    settings = load("")
    assert settings == Settings(
        root=tmp_path, name="ads", modules=("flow",), lake=str(tmp_path / ".headrace/lake")
    )


def test_every_section_is_read(load, tmp_path):
    (tmp_path / "ca.pem").touch()
    (tmp_path / "password").write_text("from-file\n")
    settings = load(
        """
        [kafka]
        bootstrap_servers = "b1:9092, b2:9092"
        security_protocol = "SASL_SSL"
        ssl_ca_file = "ca.pem"
        ssl_key_password = { file = "password" }
        sasl_mechanism = "SCRAM-SHA-512"
        sasl_username = "ads"
        sasl_password = { env = "PASSWORD" }
        [kafka.embedded]
        brokers = 3
        ports = [9001, 9002, 9003]
        heap_mb = 256
        [spark]
        master = "spark://host:7077"
        [spark.config]
        spark.executor.cores = 2
        "spark.ui.enabled" = false
        [ledger]
        enabled = false
        window_seconds = 60
        [restart]
        budget = 0
        first_delay_seconds = 0.5
        max_delay_seconds = 10
        """,
        PASSWORD="secret",
    )
    assert settings.kafka.bootstrap_servers == "b1:9092,b2:9092"
    assert settings.kafka.security == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "ads",
        "ssl.ca.location": str(tmp_path / "ca.pem"),
    }
    secrets = settings.kafka.secrets
    assert {name: one.reveal() for name, one in secrets.items()} == {
        "sasl.password": "secret",
        "ssl.key.password": "from-file",
    }
    assert settings.kafka.embedded.ports == (9001, 9002, 9003)
    assert settings.spark.config == {"spark.executor.cores": "2", "spark.ui.enabled": "false"}
    assert settings.ledger == LedgerSettings(enabled=False, window_seconds=60)
    assert (settings.restart.budget, settings.restart.max_delay_seconds) == (0, 10.0)


def test_a_login_by_token_and_settings_of_the_client_are_passed_on(load, tmp_path):
    (tmp_path / "ca.pem").touch()
    settings = load(
        """
        [kafka]
        bootstrap_servers = "b:1"
        security_protocol = "SASL_SSL"
        sasl_mechanism = "OAUTHBEARER"
        [kafka.oauth]
        token_endpoint_url = "https://login.example/token"
        client_id = "ads"
        client_secret = { env = "SECRET" }
        scope = "kafka"
        extensions = "logicalCluster=lkc-1"
        ca_file = "ca.pem"
        [kafka.client]
        client.rack = "eu-1a"
        "socket.keepalive.enable" = true
        linger.ms = 5
        """,
        SECRET="s",
    )
    assert settings.kafka.security == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": "https://login.example/token",
        "sasl.oauthbearer.client.id": "ads",
        "sasl.oauthbearer.scope": "kafka",
        "sasl.oauthbearer.extensions": "logicalCluster=lkc-1",
        "https.ca.location": str(tmp_path / "ca.pem"),
    }
    assert settings.kafka.secrets["sasl.oauthbearer.client.secret"].reveal() == "s"
    assert settings.kafka.client == {
        "client.rack": "eu-1a",
        "socket.keepalive.enable": "true",
        "linger.ms": "5",
    }


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[kafka.client]\nclient.idd = "x"', "client.idd can't be set.*did you mean 'client.id'"),
        (
            '[kafka.client]\nacks = "1"',
            "kafka.client.acks can't be set: .*lost.*min.insync.replicas of the topic",
        ),
        ('[kafka.client]\nlinger.ms = "soon"', "kafka.client.linger.ms is 'soon'"),
        ('[kafka]\nsasl_mechanism = "GSSAPI"', "Kerberos is not supported"),
        ('[spark]\nmaster = "yarn"', "YARN, Kubernetes and Mesos are not supported"),
        ('[spark]\nmaster = "k8s://https://h:1"', "YARN, Kubernetes and Mesos are not supported"),
        (
            '[spark.config]\n"spark.hadoop.hadoop.security.authentication" = "kerberos"',
            "Kerberos is not supported",
        ),
        (
            (
                '[kafka]\nbootstrap_servers = "b:1"\nsecurity_protocol = "SASL_SSL"\n'
                'sasl_mechanism = "OAUTHBEARER"'
            ),
            "OAUTHBEARER needs kafka.oauth.token_endpoint_url",
        ),
    ],
)
def test_what_is_not_supported_is_refused_with_a_reason(load, text, problem):
    with pytest.raises(ProjectError, match=problem):
        load(text)


@pytest.mark.parametrize("lake", ["s3://b/lake", "abfs://c@a/lake", "gs://b", "viewfs://c/lake"])
def test_a_lake_in_an_object_store_is_refused(load, lake):
    with pytest.raises(ProjectError, match="object stores and viewfs are not supported"):
        load("", head=f'{HEAD}lake = "{lake}"\n')


def test_a_secret_prints_as_stars(load):
    text = """
    [kafka]
    bootstrap_servers = "b:1"
    security_protocol = "SASL_SSL"
    sasl_mechanism = "PLAIN"
    sasl_username = "u"
    sasl_password = { env = "PASSWORD" }
    """
    assert "hunter2" not in repr(load(text, PASSWORD="hunter2"))


@pytest.mark.parametrize(
    ("lake", "found"),
    [
        ("hdfs://namenode:9000/lake/", "hdfs://namenode:9000/lake"),
        ("embedded-hdfs", "embedded-hdfs"),
        ("/data/lake", "/data/lake"),
    ],
)
def test_a_lake_is_a_folder_or_hdfs(load, lake, found):
    settings = load(f'lake = "{lake}"\n')
    assert settings.lake == found
    assert settings.embedded_hdfs == (lake == "embedded-hdfs")


def test_placeholders_take_their_value_from_the_environment(load):
    text = '[kafka]\nbootstrap_servers = "${HOST}:${PORT:-9092}"\n'
    assert load(text, HOST="b").kafka.bootstrap_servers == "b:9092"
    assert load(text, HOST="b", PORT="1").kafka.bootstrap_servers == "b:1"
    assert load(text, HOST="b", PORT="").kafka.bootstrap_servers == "b:9092"


def test_a_number_may_come_from_the_environment(load, problems):
    text = '[kafka.embedded]\nheap_mb = "${HEAP:-512}"\n'
    assert load(text).kafka.embedded.heap_mb == 512
    [(line, message)] = problems(text, HEAP="much")
    assert line == 2
    assert "must be a whole number, not 'much'" in message


def test_a_missing_variable_is_a_problem_by_its_name(problems):
    [(line, message)] = problems('[kafka]\n\nbootstrap_servers = "${BROKERS}"\n')
    assert line == 3
    assert "environment variable BROKERS is not set" in message


def test_all_problems_come_at_once_in_the_order_of_lines(problems):
    found = problems(
        '[kafka.embedded]\nbrokers = 0\nheap = 5\n[spark]\nmaster = "mesos://x"\n'
        '[kafka]\nbootstrap_servers = "${A}${B}"\n'
    )
    assert [line for line, _ in found] == [2, 3, 5, 7, 7]


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("[kafak]\n", 1, "unknown key kafak (did you mean 'kafka'?)"),
        ('[kafka]\nbootstrap_server = "b:1"\n', 2, "did you mean 'bootstrap_servers'?"),
        ('[spark]\nlake = "x"\n', 2, "it belongs under [project]"),
        ("[spark.config]\nmaster = 1\n", 2, "Spark's names begin `spark.`"),
        ("[spark.config]\nspark.x = [1]\n", 2, "must be text, a number, true or false"),
        ('lake = "gs://bucket"\n', 1, "project.lake is 'gs://bucket'"),
        ('lake = "s3://"\n', 1, "project.lake is 's3://'"),
        ('checkpoints = "s3://bucket"\n', 1, "project.checkpoints is 's3://bucket'"),
        ('[s3]\nendpoint = "host:9000"\n', 2, "https://host:port"),
        ('[s3]\nendpoint = "http://host:9000"\n', 2, "allow_http = true"),
        ('[s3]\naccess_key_id = "a"\n', 2, "both, or neither"),
        ('[s3]\nsecret_access_key = "a"\n', 2, "secret_access_key"),
        ('[s3]\nsession_token = "a"\n', 2, "session_token"),
        ("[s3]\nallow_http = 1\n", 2, "must be true or false"),
        ("lake = 7\n", 1, "project.lake must be text, not 7"),
        ("kafka = 1\n[project.x]\n", 2, "unknown key project.x"),
        ('[kafka]\nbootstrap_servers = "b"\n', 2, "'b' is not host:port"),
        ("[kafka.embedded]\nbrokers = 4\n", 2, "at least 1 and at most 3"),
        ("[kafka.embedded]\nbrokers = true\n", 2, "must be a whole number, not True"),
        ("[kafka.embedded]\nports = [1, 1]\nbrokers = 2\n", 2, "1 different port(s)"),
        ("[kafka.embedded]\nports = [70000]\n", 2, "70000 is not a port"),
        ('[kafka.embedded]\nports = "9092"\n', 2, "must be a list of whole numbers, not '9092'"),
        ("[kafka.embedded]\nports = 9092\n", 2, "not 9092 (write ports = [9092])"),
        ("[ledger]\nwindow_seconds = 7200\n", 2, "one of 60, 300, 900, 3600, 86400"),
        ("[restart]\nbudget = -1\n", 2, "at least 0"),
        ("[restart]\nfirst_delay_seconds = 0\n", 2, "must be above 0"),
        ("[restart]\nfirst_delay_seconds = 90\n", 1, "max_delay_seconds is shorter"),
        ('[kafka]\nssl_ca_file = "none.pem"\n', 2, "there is no file none.pem"),
        ('[kafka]\nsecurity_protocol = "SSL"\n', 2, "the embedded broker speaks PLAINTEXT"),
        ('[kafka]\nsasl_username = "u"\n', 1, "have no effect"),
    ],
)
def test_what_is_wrong_is_a_problem_at_its_line(problems, text, line, message):
    found = problems(text)
    assert (line, True) in [(at, message in said) for at, said in found], found


@pytest.mark.parametrize(
    ("secret", "message"),
    [
        ('"hunter2"', "can't stand in this file"),
        ('"${PASSWORD}"', "can't stand in this file"),
        ('{ env = "PASSWORD" }', "environment variable PASSWORD is not set"),
        ('{ file = "none" }', "can't be read"),
        ('{ env = "A", file = "b" }', "can't stand in this file"),
        ("{ env = 1 }", "must be text"),
    ],
)
def test_a_secret_is_given_by_reference_only_and_must_be_there(problems, secret, message):
    found = problems(
        '[kafka]\nbootstrap_servers = "b:1"\nsecurity_protocol = "SASL_SSL"\n'
        f'sasl_mechanism = "PLAIN"\nsasl_username = "u"\nsasl_password = {secret}\n'
    )
    [(line, said)] = found
    assert line == 6
    assert message in said
    assert "hunter2" not in said


def test_sasl_says_what_it_lacks(problems):
    found = problems('[kafka]\nbootstrap_servers = "b:1"\nsecurity_protocol = "SASL_SSL"\n')
    assert [message.partition("needs ")[2] for _, message in found] == [
        "kafka.sasl_mechanism",
        "kafka.sasl_username",
        "kafka.sasl_password",
    ]


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ("", "project.name is missing"),
        ('[project]\nname = "a b"\nmodules = ["flow"]\n', "may hold letters"),
        ('[project]\nname = "a"\n', "names no module"),
        ('[project]\nname = "a"\nmodules = ["flow.py/"]\n', "not a module's name"),
        ("project = 3\n", "project must be a table"),
    ],
)
def test_a_project_has_a_name_and_modules(problems, head, message):
    assert any(message in said for _, said in problems("", head=head))


def test_a_module_that_stands_alone_is_one_problem(problems):
    [(_, message)] = problems("", head='[project]\nname = "a"\nmodules = "flow"\n')
    assert "must be a list of texts, not 'flow' (write modules = [\"flow\"])" in message


def test_what_is_not_toml_is_a_problem_at_its_line(problems):
    [(line, message)] = problems("[kafka\n")
    assert (line, "not TOML" in message) == (1, True)


def test_a_missing_file_is_a_problem(tmp_path):
    with pytest.raises(ProjectError, match="there is no such file"):
        load_settings(tmp_path, {})


def test_the_nearest_project_upwards_is_found(tmp_path):
    (tmp_path / "headrace.toml").touch()
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    assert find_project(inner) == tmp_path
    assert find_project(tmp_path.parent) is None


@pytest.mark.parametrize(
    ("given", "environ", "url", "printed"),
    [
        ('"redis://cache"', {}, "redis://cache", "redis://cache"),
        ('"rediss://[::1]:6380/2"', {}, "rediss://[::1]:6380/2", "rediss://[::1]:6380/2"),
        ('"redis://:${PW}@c:1/0"', {"PW": "a:b%2F"}, "redis://:a:b%2F@c:1/0", "redis://***@c:1/0"),
        ('{ env = "URL" }', {"URL": "redis://u:p@c"}, "redis://u:p@c", "redis://***@c"),
        ('"${URL}"', {"URL": "redis://u:p@c"}, "redis://u:p@c", "redis://***@c"),
    ],
)
def test_the_address_of_redis_prints_without_its_password(load, given, environ, url, printed):
    redis = load(f"[ingest]\nredis = {given}\n", **environ).ingest.redis
    assert redis.reveal() == url
    assert {str(redis), repr(redis), f"{redis}"} == {printed}
    assert pickle.loads(pickle.dumps(redis)).reveal() == url


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ('"redis://:hunter2@cache"', "can't stand in this file"),
        ('"redis://u:hunter2/@cache:6379/0"', "can't stand in this file"),
        ('"redis://:${PW:-hunter2}@cache"', "can't stand in this file"),
        ('"redis://cache?password=hunter2"', "ingest.redis is 'redis://cache'"),
        ('"redis://:${PASSWORD}@cache"', "ingest.redis is 'redis://***@cache'"),
        ('"http://cache"', "ingest.redis is 'http://cache'"),
        ('"redis://cache:70000"', "ingest.redis is 'redis://cache:70000'"),
        ('"redis://cache/one"', "ingest.redis is 'redis://cache/one'"),
        ('"cache:6379"', "ingest.redis is 'cache:6379'"),
        ('["redis://:hunter2@cache"]', "can't stand in this file"),
    ],
)
def test_a_wrong_address_of_redis_is_named_without_its_password(problems, given, message):
    [(line, said)] = problems(f"[ingest]\nredis = {given}\n", PASSWORD="hunter2/@#?x")
    assert line == 2
    assert message in said
    assert "hunter2" not in said


@pytest.mark.parametrize(
    "given",
    ['redis = "redis://:${NONE}@cache"', 'webhook_key = { env = "NONE" }', 'host = "${NONE}"'],
)
def test_only_the_service_needs_the_variables_of_its_table(load, given):
    settings = load(f"[ingest]\n{given}\n")
    [problem] = settings.unset
    assert "environment variable NONE is not set" in str(problem)
    with pytest.raises(ProjectError, match="NONE is not set"):
        settings.require_ingest()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("max_decoded_bytes = 10", "ingest.max_decoded_bytes is below ingest.max_body_bytes"),
        ("linger_seconds = 5", "ingest.linger_seconds is not below ingest.deadline_seconds"),
    ],
)
def test_limits_of_ingest_that_contradict_each_other_are_refused(problems, line, said):
    [(_, found)] = problems(f"[ingest]\n{line}\n")
    assert said in found


def test_origins_are_those_that_browsers_send(load):
    origins = '["https://shop.example.com", "http://localhost:3000", "http://[::1]:8080"]'
    expected = ("https://shop.example.com", "http://localhost:3000", "http://[::1]:8080")
    assert load(f"[ingest]\ncors_origins = {origins}\n").ingest.cors_origins == expected
    assert load('[ingest]\ncors_origins = ["*"]\n').ingest.cors_origins == ("*",)


@pytest.mark.parametrize(
    "origin",
    ["shop.example.com", "https://shop.example.com/", "https://Shop.example.com", "", "https://*"],
)
def test_what_no_browser_sends_as_an_origin_is_refused(problems, origin):
    [(line, said)] = problems(f'[ingest]\ncors_origins = ["{origin}"]\n')
    assert line == 2
    assert f"ingest.cors_origins has {origin!r}" in said


def test_all_origins_stand_alone(problems):
    [(_, said)] = problems('[ingest]\ncors_origins = ["*", "https://shop.example.com"]\n')
    assert "'*' beside others" in said


def test_the_key_of_webhooks_is_a_secret_of_some_length(load, problems):
    text = '[ingest]\nwebhook_key = { env = "KEY" }\n'
    key = load(text, KEY="k" * 32).ingest.webhook_key
    assert (key.reveal(), str(key)) == ("k" * 32, "Secret('***')")
    assert load("[ingest]\n").ingest.webhook_key is None
    [(line, said)] = problems(text, KEY="short-secret")
    assert line == 2
    assert "openssl rand" in said
    assert "short-secret" not in said
    [(_, said)] = problems(f'[ingest]\nwebhook_key = "{"k" * 32}"\n')
    assert "can't stand in this file" in said


def test_the_access_log_is_off_or_of_a_known_form(load, problems):
    assert load("[ingest]\n").ingest.access_log == ""
    settings = load('[ingest.access_log]\nformat = "json"\nlines_per_second = 7\n').ingest
    assert (settings.access_log, settings.access_log_lines_per_second) == ("json", 7)
    [(_, said)] = problems('[ingest.access_log]\nformat = "xml"\n')
    assert "one of json, text" in said


@pytest.mark.parametrize("url", ["https://events.example.com", "http://localhost:8080/a/b"])
def test_the_public_address_of_ingest_may_have_a_path(load, url):
    assert load(f'[ingest]\npublic_url = "{url}"\n').ingest.public_url == url


@pytest.mark.parametrize(
    "url", ["events.example.com", "https://h/", "https://u:p@h", "https://h?a=b"]
)
def test_another_public_address_is_refused(problems, url):
    [(_, said)] = problems(f'[ingest]\npublic_url = "{url}"\n')
    assert f"ingest.public_url is {url!r}" in said


def test_the_schema_registry_has_its_address_and_login(load, tmp_path):
    (tmp_path / "ca.pem").write_text("")
    text = (
        '[schema_registry]\nurl = "https://registry:8081/"\nusername = "ann"\n'
        'password = { env = "PASSWORD" }\nca_file = "ca.pem"\n'
    )
    registry = load(text, PASSWORD="hunter2").schema_registry
    assert (registry.url, registry.username) == ("https://registry:8081", "ann")
    assert registry.password.reveal() == "hunter2"
    assert registry.ca_file == str(tmp_path / "ca.pem")
    assert load("").schema_registry is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('username = "a"\npassword = { env = "PASSWORD" }', "schema_registry.url is ''"),
        ('url = "registry:8081"', "schema_registry.url is 'registry:8081'"),
        ('url = "http://ann@registry"', "such as http://registry:8081, the user and password in"),
        ('url = "http://registry"\nusername = "a"', "username and password go together"),
        ('url = "http://registry"\nca_file = "no.pem"', "there is no file no.pem"),
    ],
)
def test_a_schema_registry_that_can_not_be_is_a_problem(problems, text, message):
    [(_, said)] = problems(f"[schema_registry]\n{text}\n", PASSWORD="hunter2")
    assert message in said
    assert "hunter2" not in said


def test_a_lake_on_s3_has_the_options_of_its_server_and_keeps_secrets_out_of_sight(load):
    head = HEAD + 'lake = "s3://ads-lake/prefix/"\n'
    text = """
    [s3]
    endpoint = "http://127.0.0.1:9000/"
    region = "eu-central-1"
    allow_http = true
    access_key_id = "${KEY}"
    secret_access_key = { env = "SECRET" }
    session_token = { env = "TOKEN" }
    """
    variables = {"KEY": "key", "SECRET": "hidden", "TOKEN": "hidden-too"}
    settings = load(text, head=head, AWS_SESSION_TOKEN="of other keys", **variables)
    assert settings.lake == "s3://ads-lake/prefix"
    assert settings.storage == {
        "endpoint": "http://127.0.0.1:9000",
        "region": "eu-central-1",
        "allow_http": "true",
        "access_key_id": "key",
        "secret_access_key": "hidden",
        "session_token": "hidden-too",
    }
    assert "hidden" not in repr(settings)
    assert load("", head=head).storage == load(text, **variables).storage == {}


KEYS = '[s3]\naccess_key_id = "a"\nsecret_access_key = { env = "SECRET" }\n'


@pytest.mark.parametrize("variable", ["AWS_SESSION_TOKEN", "AWS_TOKEN"])
def test_keys_are_not_sent_with_the_token_of_other_keys(load, problems, variable):
    [(line, said)] = problems(KEYS, SECRET="s", **{variable: "of other keys"})
    assert (line, f"unset {variable}" in said) == (2, True)
    assert "of other keys" not in said
    assert load(KEYS, SECRET="s", **{variable: ""}).s3.session_token is None
    assert load("", **{variable: "of its own keys"}).s3.options == {}


def test_a_session_token_needs_the_keys_that_it_belongs_to(problems):
    [(line, said)] = problems('[s3]\nsession_token = { env = "TOKEN" }\n', TOKEN="t")
    assert (line, "has a session_token without keys" in said) == (2, True)


@pytest.mark.parametrize(
    ("checkpoints", "root"), [("hdfs://n:9000/c/", "hdfs://n:9000/c"), ("shared", "{root}/shared")]
)
def test_checkpoints_may_lie_beside_the_lake(load, tmp_path, checkpoints, root):
    settings = load("", head=HEAD + f'checkpoints = "{checkpoints}"\n')
    assert settings.checkpoints == root.format(root=tmp_path)


def test_a_site_has_a_cluster_of_its_own(load):
    settings = load(
        """
[sites.warsaw.kafka]
bootstrap_servers = "w:1"
[sites.london.kafka.embedded]
brokers = 3
"""
    )
    assert settings.site == "central"
    assert settings.sites["warsaw"].bootstrap_servers == "w:1"
    assert settings.sites["london"].embedded.brokers == 3
    assert settings.state_of_site("london") == settings.state / "sites" / "london"


def test_problems_of_a_sites_cluster_name_its_table(problems):
    text = """
[sites.warsaw.kafka]
security_protocol = "SASL_SSL"
bootstrap_servers = "w:1"
sasl_mechanism = "PLAIN"
[sites.warsaw.kafka.client]
acks = "1"
"""
    found = [text for _, text in problems(text)]
    assert any("needs sites.warsaw.kafka.sasl_username" in text for text in found)
    assert any("sites.warsaw.kafka.client.acks can't be set" in text for text in found)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[sites.central.kafka]", "site 'central' is the project's own"),
        ('[sites."a.b".kafka]', "'a.b' is no name of a site"),
    ],
)
def test_names_of_sites_are_checked(problems, text, problem):
    assert any(problem in found for _, found in problems(text))


def test_a_table_within_a_sinks_settings_has_dotted_names(load, problems):
    text = """\
[sinks.postgres]
url = "postgresql://app:${WORD}@db/items"
[sinks.postgres.eu]
url = { env = "EU" }
[sinks.postgres.us]
url = "postgresql://app:${WORD}@db-us/items"
"""
    settings = load(text, WORD="hush", EU="postgresql://db-eu/items").sinks["postgres"]
    assert {name: value.reveal() for name, value in settings.items()} == {
        "url": "postgresql://app:hush@db/items",
        "eu.url": "postgresql://db-eu/items",
        "us.url": "postgresql://app:hush@db-us/items",
    }
    assert "hush" not in str(settings)
    [(line, said)] = problems(text.replace("${WORD}@db-us", "hush@db-us"), WORD="w", EU="e")
    assert (line, "hush" in said) == (6, False)
    [(line, said)] = problems(text, WORD="w")
    assert line == 4
    assert "EU" in said
