"""The places that pass names on: each takes any name as it is, or the name is refused before.

What needs a server or Spark is beside the other tests of it: search for ``contracts.names``.
"""

import os
import re
import subprocess
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from tests.contracts.names import COLUMNS, FOLDERS
from tests.contracts.sink import add
from tests.in_process import output

from headrace import Lake
from headrace.errors import ProjectError
from headrace.metrics import Metric
from headrace.runtime.prometheus import metric_lines
from headrace.settings import load_settings
from headrace.sinks.lake.delta.table import LakeTable, read_table
from headrace.sinks.lake.files.data_file import WriteSpec
from headrace.sinks.lake.writer import PartitionedWriter
from headrace.storage import files as storage

PROJECT = '[project]\nname = "ads"\nmodules = ["flow"]\n'
NOON = datetime(2019, 11, 24, 12, tzinfo=UTC)
OWN_BROKER = '[kafka]\nbootstrap_servers = "b:1"\n'


def project(folder, text=PROJECT):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "headrace.toml").write_text(text, encoding="utf-8")
    return load_settings(folder, {})


def test_a_project_is_in_a_folder_of_any_name(tmp_path):
    folder = tmp_path.joinpath(*FOLDERS)
    assert project(folder).lake == str(folder / ".headrace" / "lake")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("a:b", "Java takes no ':' in a class path"),
        ("\U0001f600", "Java takes no '\U0001f600' in a class path"),
        ("a,b", "the embedded broker takes ',' for the end of a path"),
        ("a\nb", r"'\\n' is no character of a name"),
        (os.fsdecode(b"\xff"), r"'\\udcff' is no character of a name"),
    ],
)
def test_a_folder_that_a_program_takes_for_another_is_refused(tmp_path, name, reason):
    with pytest.raises(ProjectError, match=f"{reason} .rename the folder"):
        project(tmp_path / name)


def test_the_broker_of_others_has_no_part_in_the_projects_folder(tmp_path):
    assert project(tmp_path / "a,b", PROJECT + OWN_BROKER).root == tmp_path / "a,b"


@pytest.mark.parametrize("key", ["lake", "checkpoints"])
@pytest.mark.parametrize("place", ["hdfs://h/a%20b", "hdfs://h/a?b", "hdfs://h/a#b", r"a\u0000b"])
def test_an_address_that_clients_read_in_two_ways_is_refused(tmp_path, key, place):
    with pytest.raises(ProjectError, match=rf"project\.{key} is .*without '\?', '#' and '%'"):
        project(tmp_path, f'{PROJECT}{key} = "{place}"\n')


@pytest.mark.parametrize("name", ["%41", "50%ab", "back\\slash"])
def test_a_lake_is_in_no_folder_that_the_client_of_delta_misreads(tmp_path, name):
    reason = "Delta's client takes '.+' for something else .a folder without it in its path"
    with pytest.raises(ProjectError, match=rf"project\.lake is '.+': {reason}"):
        project(tmp_path / name)
    assert project(tmp_path / name / "b", f'{PROJECT}lake = "{tmp_path}"\n').lake == str(tmp_path)


@pytest.mark.parametrize("name", [*FOLDERS, "a:b", "a,b", "%41", "back\\slash"])
def test_a_file_is_where_its_name_says(tmp_path, name):
    folder, options = f"{tmp_path}/{name}", storage.NO_OPTIONS
    storage.ensure_folder(folder, name)
    storage.write_bytes_atomic(f"{folder}/{name}/{name}", b"1", options)
    assert (tmp_path / name / name / name).read_bytes() == b"1"
    assert storage.list_files(folder) == [f"{name}/{name}"]
    assert storage.read_bytes((tmp_path / name / name / name).as_uri()) == b"1"
    storage.delete_files(folder, [f"{name}/{name}"])
    assert not storage.exists(f"{folder}/{name}/{name}")


@pytest.mark.parametrize("column", COLUMNS)
def test_a_lake_has_times_partitions_and_columns_of_any_name(tmp_path, column):
    root, time = str(tmp_path.joinpath(*FOLDERS)), f"^{column}$"
    texts = [name for name in COLUMNS if name != time]
    columns = pa.schema(dict.fromkeys(texts, pa.string()) | {time: pa.timestamp("us", "UTC")})
    spec = WriteSpec(root, columns, Lake("t", partition_by=("day", column)).layout, time)
    row = {name: name.replace("/", "|") for name in texts} | {time: NOON}
    writer = PartitionedWriter(spec, "t")
    assert writer.write(pa.Table.from_pylist([row], columns)) == []
    add(LakeTable(spec), writer.finish(), version=0)
    assert read_table(root, columns.names).to_pylist() == [row]


@pytest.mark.parametrize("name", [*FOLDERS, *COLUMNS, "two\nlines"])
def test_a_label_of_a_metric_reads_back_as_it_is(name):
    metric = Metric("rows", "rows", "meaning", "remedy")
    *_, line = metric_lines("headrace_", metric, [({"name": name, "last": "1"}, 5)])
    labels, number = re.fullmatch(r"headrace_rows\{(.*)\} (\d+)", line).groups()
    (quoted,) = re.fullmatch(r'name="((?:[^"\\]|\\["\\n])*)",last="1"', labels).groups()
    read = re.sub(r"\\(.)", lambda part: "\n" if part[1] == "n" else part[1], quoted)
    assert (read, number) == (name, "5")


@pytest.mark.parametrize("name", FOLDERS)
def test_a_shell_goes_where_init_says(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    said = output("init", "--", name)
    [line] = re.findall(r"^ +(cd .*)$", said, re.MULTILINE)
    shell = ["/bin/sh", "-ec", f"{line}\npwd"]
    there = subprocess.run(shell, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert there.stdout == f"{tmp_path / name}\n"
