import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pyspark
from tests.contracts.names import FOLDERS
from tests.waiting import LIMIT_SECONDS, wait_for

from headrace.runtime.java.spark_jars import spark_jar
from headrace.runtime.servers.process import ProcessIdentity
from headrace.spark.session import java_options, jvm_environ, spark_home

# Of Hadoop's client in PySpark, whose class warns that it has no native library.
JARS = (
    *("hadoop-client-api", "hadoop-client-runtime", "slf4j-api", "jcl-over-slf4j"),
    *("log4j-api", "log4j-core", "log4j-1.2-api", "log4j-slf4j2-impl"),
)

# Spark asks one JVM for the command of the other, whose first sign of life takes long here.
SLOW_JAVA = r"""#!/bin/sh
case "$*" in
    *org.apache.spark.launcher.Main*) printf '\0\n%s\0gateway\0' "$0"; exit 0 ;;
esac
echo $$ > "$0.starting"
mv "$0.starting" "$0.pid"
exec sleep 600
"""
START = """
import signal, sys
from pathlib import Path
from headrace.spark.session import start_session
from headrace.settings.model import SparkSettings

signal.signal(signal.SIGINT, signal.default_int_handler)  # a run in the background ignores it
folder = Path(sys.argv[1])
java = {"JAVA_HOME": str(folder)}
start_session("interrupted", SparkSettings(), master="local[1]", java=java, state=folder)
"""


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


def test_two_cores_are_left_to_the_work():
    few = java_options("", cores=2)
    assert "-XX:+UseSerialGC" in few
    assert "-XX:Tier4InvocationThreshold" in few
    assert "-XX:" not in java_options("", cores=8)


def test_the_users_own_collector_is_kept():
    options = java_options("-XX:+UseG1GC", cores=2)
    assert " -XX:+UseG1GC " in options
    assert "Serial" not in options


def test_the_users_own_thresholds_of_the_compiler_are_kept():
    options = java_options("-XX:TieredStopAtLevel=1", cores=2)
    assert " -XX:TieredStopAtLevel=1 -XX:+UseSerialGC " in options
    assert "Tier4" not in options


def test_stacks_hold_a_search_through_a_long_traceback_unless_the_user_chose():
    assert "-Xss64m" in java_options("", cores=8)
    assert "-Xss64m" not in java_options("-Xss8m", cores=8)


def test_a_jvm_warns_where_no_command_answers(java):
    """Where no large pages are set up, a JVM warns of the option on standard output by default."""
    options = shlex.split(java_options("-XX:+UseLargePages", cores=2))
    done = subprocess.run(
        [java.executable, *options, "-version"], capture_output=True, check=True, text=True
    )
    assert done.stdout == ""


def test_what_the_user_wants_to_be_logged_is_logged(java, tmp_path, monkeypatch):
    log = tmp_path / "gc.log"
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Xlog:gc=info:file={log}")
    options = shlex.split(java_options("-Xlog:gc=info:stdout", cores=2))
    done = subprocess.run(
        [java.executable, *options, "-version"], capture_output=True, check=True, text=True
    )
    assert "Using Serial" in done.stdout
    assert "Using Serial" in log.read_text()


def test_sparks_log_is_written_and_rolled_in_a_folder_of_any_name(java, tmp_path):
    log = tmp_path.joinpath(*FOLDERS, "spark.log")
    log.parent.mkdir(parents=True)
    log.touch()
    os.truncate(log, (20 << 20) + 1)
    options = shlex.split(java_options("", cores=2))
    class_path = ":".join(str(spark_jar(name)) for name in JARS)
    command = [java.executable, *options, "-cp", class_path]
    environ = os.environ | {"LC_ALL": "C"} | jvm_environ(log)
    main = "org.apache.hadoop.util.NativeLibraryChecker"
    subprocess.run([*command, main], env=environ, capture_output=True, check=False)
    assert {file.name for file in log.parent.iterdir()} == {"spark.log", "spark.log.1"}
    assert "NativeCodeLoader" in log.read_text()


def test_a_start_that_is_interrupted_leaves_no_jvm(tmp_path):
    java, pid = tmp_path / "bin" / "java", tmp_path / "bin" / "java.pid"
    java.parent.mkdir()
    java.write_text(SLOW_JAVA)
    java.chmod(0o755)
    with subprocess.Popen([sys.executable, "-c", START, tmp_path], stderr=subprocess.PIPE) as start:
        wait_for(pid.exists)
        jvm = ProcessIdentity.of(int(pid.read_text()))
        start.send_signal(signal.SIGINT)
        assert b"KeyboardInterrupt" in start.communicate(timeout=LIMIT_SECONDS)[1]
    assert jvm is not None
    wait_for(lambda: not jvm.alive())
