"""Addresses of stores of profiles: what is wrong with them is known without a connection."""

from datetime import timedelta

import pytest

from headrace.errors import ProfileStoreError
from headrace.settings import Secret
from headrace.sinks.profiles.registry import check_url, open_store

HOST = "cassandra://u:hunter2@h"


@pytest.mark.parametrize(
    "url",
    [
        "redis://h",
        "redis://:hunter2@h:6379/0?socket_timeout=5",
        "rediss://u:p%2Fw@[::1]:6380",
        "unix:///run/redis.sock?db=2",
        "unix://:hunter2@/run/redis.sock",
        "cassandra://h/site",
        f"{HOST}:9042,h2,[::1]:9043/site?consistency=QUORUM&timeout=0.5&datacenter=dc1",
        f"{HOST}/site?ssl=true&ssl_ca_file=/ca.pem&ssl_check_hostname=false",
    ],
)
def test_an_address_of_a_store(url):
    check_url(Secret(url))


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("cassandras://u:hunter2@h/site", "begins with none of"),
        ("h:hunter2", "begins with none of"),
        ("redis://", "its form is redis://"),
        ("redis://u:hun/ter2@h", "its form is redis://"),
        ("redis://:hunter2@h:x", "its form is redis://"),
        ("redis://:hunter2@h:99999", "its form is redis://"),
        ("unix://run", "its form is redis://"),
        (HOST, "names no keyspace"),
        (f"{HOST}:9042/", "names no keyspace"),
        ("cassandra://u:hunter2@/site", "URL is not valid"),
        ("cassandra://u:hun/ter2@h/site", "URL is not valid"),
        (f"{HOST}/a-b", "URL is not valid"),
        (f"{HOST}:x/site", "URL is not valid"),
        (f"{HOST}:99999/site", "there is no port 99999"),
        (f"{HOST}:0/site", "there is no port 0"),
        (f"{HOST}/site?consistency=MOST", "an example is consistency=LOCAL_QUORUM"),
        (f"{HOST}/site?consistency=ANY", "option 'consistency'"),
        (f"{HOST}/site?consistency=SERIAL", "option 'consistency'"),
        (f"{HOST}/site?timeout=0", "option 'timeout'"),
        (f"{HOST}/site?timeout=0.0", "option 'timeout'"),
        (f"{HOST}/site?tls=true", "option 'tls' of the URL is unknown"),
        (f"{HOST}/site?ssl=1", "an example is ssl=true"),
        (f"{HOST}/site?datacenter=", "option 'datacenter'"),
        (f"{HOST}/site?ssl_ca_file=/ca.pem", "'ssl_ca_file' of the URL needs ssl=true"),
        (f"{HOST}/site?ssl=true&ssl_key_file=/key.pem", "needs ssl_certificate_file"),
    ],
)
def test_an_address_that_is_none_is_refused_without_its_secrets(url, message):
    for use in (check_url, lambda each: open_store(each, "users", timedelta(days=1))):
        with pytest.raises(ProfileStoreError) as raised:
            use(Secret(url))
        assert message in str(raised.value)
        assert "[sinks.profiles]" in str(raised.value)
        assert not any(part in str(raised.value) for part in ("hunter2", "hun/", "ter2"))


def test_an_option_that_redis_has_not_is_refused():
    with pytest.raises(ProfileStoreError, match="an option of the URL") as raised:
        open_store(Secret("redis://:hunter2@h?colour=red"), "users", timedelta(days=1))
    assert "hunter2" not in str(raised.value)
