"""The embedded HDFS, with a real client."""

from __future__ import annotations

import pytest
from hdfs_native import Client

from headrace.runtime.servers.hdfs import EmbeddedHdfs

CONTENT = b"impression" * 100_000


def test_what_is_written_is_read(hdfs):
    client = Client(hdfs.uri)
    with client.create("/written/here.txt") as file:
        file.write(CONTENT)
    with Client(hdfs.uri).read("/written/here.txt") as file:
        assert file.read() == CONTENT


def test_starting_twice_is_one_hdfs(hdfs):
    before = hdfs.server.status()
    assert hdfs.server.start() == hdfs.uri == before.uri
    assert hdfs.server.status() == before
    assert before.running


@pytest.mark.drill
def test_files_survive_a_stop_and_a_start_at_the_same_address(java, jars, tmp_path, stop_at_end):
    server = EmbeddedHdfs(tmp_path, java, jars("hdfs"))
    stop_at_end(tmp_path)
    uri = server.start()
    with Client(uri).create("/kept.txt") as file:
        file.write(CONTENT)
    server.stop()
    assert not server.status().running
    assert server.start() == uri
    with Client(uri).read("/kept.txt") as file:
        assert file.read() == CONTENT
    server.stop()
