"""Jars from the lock, with a stand-in for Ivy that copies from a folder."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.errors import JarError
from headrace.runtime.java import jars
from headrace.runtime.java.installation import Java
from headrace.runtime.java.jars import LOCK, Jar, fetch_jars, locked
from headrace.runtime.java.relock import ROOTS

FAKE_JAVA = """\
#!{python}
import pathlib, re, shutil, sys
repository = pathlib.Path({repository!r})
with open(repository / "starts", "a") as starts:
    starts.write("started\\n")
ivy_xml = pathlib.Path(sys.argv[sys.argv.index("-ivy") + 1])
wanted = re.findall(r'org="(.*?)" name="(.*?)" rev="(.*?)"', ivy_xml.read_text())
for organisation, name, revision in wanted:
    source = repository / f"{{name}}-{{revision}}.jar"
    target = ivy_xml.parent / "cache" / organisation / name / "jars" / source.name
    if source.exists():
        target.parent.mkdir(parents=True)
        shutil.copy(source, target)
    else:
        print("\\t\\tmodule not found: " + f"{{organisation}}#{{name}};{{revision}}")
"""


class Repository:
    """A folder of jars, and the fake Java that serves them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "repository"
        self.java = Java(folder / "java", 17, bundled=False)
        self.folder.mkdir()
        self.java.executable.parent.mkdir(parents=True)
        script = FAKE_JAVA.format(python=sys.executable, repository=str(self.folder))
        self.java.executable.write_text(script)
        self.java.executable.chmod(0o755)

    def add(self, name: str, content: bytes = b"a jar", *, locked_content: bytes | None = None):
        (self.folder / f"{name}-1.0.jar").write_bytes(content)
        pinned = content if locked_content is None else locked_content
        return Jar("org.example", name, "1.0", hashlib.sha256(pinned).hexdigest(), len(pinned))

    @property
    def starts(self) -> int:
        log = self.folder / "starts"
        return len(log.read_text().splitlines()) if log.exists() else 0


@pytest.fixture
def repository(tmp_path) -> Repository:
    return Repository(tmp_path)


@pytest.fixture
def cache(tmp_path) -> Path:
    return tmp_path / "cache"


def quiet(*_) -> None: ...


def fetch(wanted, repository, cache, on_progress=quiet, **options):
    return fetch_jars(wanted, repository.java, cache=cache, on_progress=on_progress, **options)


def test_jars_come_in_the_order_of_the_lock_with_their_content(repository, cache):
    wanted = [repository.add("b", b"second"), repository.add("a", b"first")]
    paths = fetch(wanted, repository, cache)
    assert [path.name for path in paths] == ["b-1.0.jar", "a-1.0.jar"]
    assert [path.read_bytes() for path in paths] == [b"second", b"first"]


def test_nothing_is_started_when_all_jars_are_in_place(repository, cache):
    wanted = [repository.add("a")]
    fetch(wanted, repository, cache)
    fetch(wanted, repository, cache)
    assert repository.starts == 1


def test_only_the_missing_jar_is_fetched(repository, cache):
    first = repository.add("a")
    fetch([first], repository, cache)
    (repository.folder / "a-1.0.jar").unlink()
    assert len(fetch([first, repository.add("b")], repository, cache)) == 2


def test_a_damaged_jar_is_fetched_again(repository, cache):
    wanted = [repository.add("a", b"good")]
    (path,) = fetch(wanted, repository, cache)
    path.write_bytes(b"gone")
    assert fetch(wanted, repository, cache)[0].read_bytes() == b"good"


def test_a_jar_that_is_not_the_locked_one_is_refused_and_removed(repository, cache):
    forged = repository.add("a", b"forged!", locked_content=b"genuine")
    with pytest.raises(JarError, match=r"org\.example:a:1\.0.*SHA-256") as caught:
        fetch([forged], repository, cache)
    assert caught.value.jar == "org.example:a:1.0"
    assert [path for path in cache.rglob("*") if path.suffix == ".jar"] == []


def test_a_jar_that_does_not_come_is_named_and_the_others_are_kept(repository, cache):
    there = repository.add("there")
    missing = Jar("org.example", "missing", "1.0", "0" * 64, 1)
    with pytest.raises(JarError, match="the repository does not have it") as caught:
        fetch([missing, there], repository, cache)
    assert caught.value.jar == "org.example:missing:1.0"
    assert there.matches(there.path(cache))


def test_a_java_that_ends_at_once_is_told_with_its_last_words(repository, cache):
    repository.java.executable.write_text("#!/bin/sh\necho no memory\nexit 1\n")
    with pytest.raises(JarError, match="the download ended early: no memory"):
        fetch([repository.add("a")], repository, cache)


def test_a_download_that_stalls_is_given_up(repository, cache):
    repository.java.executable.write_text("#!/bin/sh\necho waiting\nexec sleep 1000\n")
    with pytest.raises(JarError, match="the download ended early: waiting"):
        fetch([repository.add("a")], repository, cache, max_stall_seconds=0.1)


def test_a_cache_that_cannot_be_made_is_an_error_of_its_own(repository, tmp_path):
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(JarError, match="the cache can't be written"):
        fetch([repository.add("a")], repository, tmp_path / "cache")


def test_progress_ends_at_the_total(repository, cache):
    wanted = [repository.add("a", b"12345"), repository.add("b", b"1234567")]
    reports: list[tuple[int, int, str]] = []
    fetch(wanted, repository, cache, lambda *report: reports.append(report))
    assert reports[-1][:2] == (12, 12)
    assert {name for _, _, name in reports} == {"a", "b"}


def test_what_is_fetched_is_said_before_it_is_and_not_again(repository, cache, monkeypatch):
    wanted = [repository.add("a", b"1" * 150_000), repository.add("b", b"2" * 50_000)]
    monkeypatch.setattr(jars, "locked", lambda _: wanted)
    assert jars.download_notice("spark-kafka", "Spark's jars", cache) == (
        "Fetching Spark's jars from Maven Central (2 jars, 0.2 MB). "
        f"This is done once: they are kept in {cache}"
    )
    fetch(wanted, repository, cache)
    assert jars.download_notice("spark-kafka", "Spark's jars", cache) == ""


def test_nothing_of_a_fetch_is_left_behind_even_after_a_crash(repository, cache):
    (cache / "fetch-abandoned").mkdir(parents=True)
    fetch([repository.add("a")], repository, cache)
    assert sorted(path.name for path in cache.iterdir()) == ["jars", "jars.lock"]


TWO = """
import sys
from pathlib import Path
from headrace.runtime.java.jars import Jar, fetch_jars
from headrace.runtime.java.installation import Java
home, cache, sha256, size = sys.argv[1:]
jar = Jar("org.example", "a", "1.0", sha256, int(size))
print(*fetch_jars([jar], Java(Path(home), 17, bundled=False), cache=Path(cache), on_progress=print))
"""


def test_two_processes_that_want_the_same_jar_fetch_it_once(repository, cache):
    jar = repository.add("a", b"x" * 1000)
    command = [sys.executable, "-c", TWO, repository.java.home, cache, jar.sha256, str(jar.size)]
    both = [
        subprocess.Popen(command, env=dict(os.environ), stdout=subprocess.PIPE) for _ in range(4)
    ]
    outputs = [each.communicate()[0].decode().splitlines()[-1] for each in both]
    assert outputs == [str(jar.path(cache))] * 4
    assert repository.starts == 1


@pytest.mark.parametrize("group", sorted(ROOTS))
def test_the_lock_holds_every_root_once_and_with_a_whole_hash(group):
    entries = locked(group)
    names = [(jar.organisation, jar.name) for jar in entries]
    assert len(set(names)) == len(names)
    assert {jar.coordinates for jar in entries} >= set(ROOTS[group].jars)
    assert all(len(jar.sha256) == 64 and jar.size > 0 for jar in entries)


def test_the_lock_names_no_repository():
    assert "://" not in LOCK.read_text()
