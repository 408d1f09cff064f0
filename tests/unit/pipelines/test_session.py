import shlex
import subprocess
from pathlib import Path

import pyspark

from headrace.pipelines.session import java_options, spark_home


def test_workers_find_no_zip_that_they_would_compile_anew(tmp_path):
    home = spark_home(tmp_path / "spark-home")
    assert (home / "bin" / "spark-submit").exists()
    assert (home / "jars").resolve() == Path(pyspark.__file__).parent / "jars"
    assert not (home / "python").exists()


def test_a_link_to_another_spark_is_replaced(tmp_path):
    stale = tmp_path / "spark-home"
    stale.mkdir()
    (stale / "jars").symlink_to(tmp_path)
    assert (spark_home(stale) / "jars").resolve() == Path(pyspark.__file__).parent / "jars"


def test_two_cores_are_left_to_the_work(tmp_path):
    few = java_options("", tmp_path / "log", cores=2)
    assert "-XX:+UseSerialGC" in few
    assert "-XX:Tier4InvocationThreshold" in few
    assert "-XX:" not in java_options("", tmp_path / "log", cores=8)


def test_the_users_own_collector_is_kept(tmp_path):
    options = java_options("-XX:+UseG1GC", tmp_path / "log", cores=2)
    assert " -XX:+UseG1GC " in options
    assert "Serial" not in options


def test_the_users_own_thresholds_of_the_compiler_are_kept(tmp_path):
    options = java_options("-XX:TieredStopAtLevel=1", tmp_path / "log", cores=2)
    assert " -XX:TieredStopAtLevel=1 -XX:+UseSerialGC " in options
    assert "Tier4" not in options


def test_stacks_hold_a_search_through_a_long_traceback_unless_the_user_chose(tmp_path):
    assert "-Xss64m" in java_options("", tmp_path / "log", cores=8)
    assert "-Xss64m" not in java_options("-Xss8m", tmp_path / "log", cores=8)


def test_a_jvm_warns_where_no_command_answers(java, tmp_path):
    """Where no large pages are set up, a JVM warns of the option on standard output by default."""
    options = shlex.split(java_options("-XX:+UseLargePages", tmp_path / "log", cores=2))
    done = subprocess.run(
        [java.executable, *options, "-version"], capture_output=True, check=True, text=True
    )
    assert done.stdout == ""


def test_what_the_user_wants_to_be_logged_is_logged(java, tmp_path, monkeypatch):
    log = tmp_path / "gc.log"
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Xlog:gc=info:file={log}")
    options = shlex.split(java_options("-Xlog:gc=info:stdout", tmp_path / "log", cores=2))
    done = subprocess.run(
        [java.executable, *options, "-version"], capture_output=True, check=True, text=True
    )
    assert "Using Serial" in done.stdout
    assert "Using Serial" in log.read_text()
