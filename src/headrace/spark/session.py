"""The Spark session that all pipelines of a driver share."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.runtime.clock import use_utc
from headrace.runtime.java.installation import home_without_module
from headrace.runtime.servers.process import FILE_NAMES_LOCALE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.settings import SparkSettings

SPARK_STARTS = "Spark is starting"
"""Commands show it before :func:`start_session`, which takes seconds, or most of a minute."""

FEW_CORES = 2
# A JVM warns on standard output, where commands answer in JSON.
_WARNINGS = "-Xlog:all=off:stdout -Xlog:all=warning:stderr"
_STACK = "-Xss64m"  # of a thread at most; memory is taken as it is used
# Ten times Java's defaults: when a method has run so often, it is compiled once more, thoroughly.
_COMPILE_LATER = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 "
    "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)

_ALWAYS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.executorEnv.TZ": "UTC",  # of Python workers, on this machine too
    "spark.python.worker.reuse": "true",
    # Tasks use all cores already; threads of polars would only compete with them.
    "spark.executorEnv.POLARS_MAX_THREADS": "1",
    "spark.speculation": "false",  # a second attempt would read and write everything twice
}

_BY_DEFAULT = {
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Spark's default keeps all state on the heap of the JVM; RocksDB keeps it on disk.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # A batch writes what it changed to the checkpoint, and not a snapshot of the store.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # Pipelines share the session: in order of arrival, one long batch would hold up all others.
    "spark.scheduler.mode": "FAIR",
    # With Arrow, a plain Python UDF over columnar input waits for ever (SPARK-58241).
    "spark.sql.execution.pythonUDF.arrow.enabled": "false",
}


def start_session(
    name: str, spark: SparkSettings, *, master: str, java: Mapping[str, str], state: Path
) -> SparkSession:
    """A session on ``master``, with Python workers of this very environment.

    ``java`` is put into the environment of the JVM: JAVA_HOME and PATH of the Java to use.
    ``state`` is the project's folder on this machine: Spark's log goes to ``logs/spark.log``.
    Local time is UTC from now on, in this process too.
    """
    use_utc()
    log = state / "logs" / "spark.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    os.environ.update(java)
    if java_home := java.get("JAVA_HOME"):
        os.environ["JAVA_HOME"] = home_without_module(java_home, state / "spark-java")
    os.environ.update(jvm_environ(log))
    os.environ["SPARK_HOME"] = str(spark_home(state / "spark-home"))
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["POLARS_MAX_THREADS"] = "1"
    if is_on_this_machine(master):
        # Otherwise Spark looks up the host's name, which fails without DNS, and listens on its
        # address.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name).master(master)
    config = _BY_DEFAULT | _local(master) | dict(spark.config) | _ALWAYS
    options = config.get("spark.driver.extraJavaOptions", "")
    config["spark.driver.extraJavaOptions"] = java_options(options, cores=os.cpu_count() or 1)
    for key, value in config.items():
        builder = builder.config(key, value)
    with _kept_interrupts(), _ended_if_interrupted():
        return builder.getOrCreate()


@contextmanager
def _kept_interrupts() -> Iterator[None]:
    """Keeps the handler of SIGINT: on the main thread, Spark installs one that cancels all jobs."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _ended_if_interrupted() -> Iterator[None]:
    """Kills the JVM whose start is interrupted: it would stay for ever.

    Spark removes the file in which the JVM is about to write where it listens, and the JVM does not
    end by that. Where the system does not list the children of a thread, it stays.
    """
    before = _children()
    try:
        yield
    except BaseException:
        for child in _children() - before:
            os.kill(child, signal.SIGKILL)
        raise


def _children() -> frozenset[int]:
    """Returns the processes that this thread has started, as long as they run."""
    try:
        return frozenset(map(int, Path("/proc/thread-self/children").read_text().split()))
    except OSError:
        return frozenset()


def spark_home(folder: Path) -> Path:
    """Spark without its zip of pyspark, so that Python workers take the installed one.

    Every worker process would compile the zip's modules again: 1.1 CPU seconds a start instead of
    0.3, and a query starts half a dozen.
    """
    import pyspark

    installed = Path(pyspark.__file__).parent
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("bin", "jars"):
        link = folder / name
        if not link.exists() or link.resolve() != (installed / name).resolve():
            link.unlink(missing_ok=True)
            link.symlink_to(installed / name)
    return folder


def jvm_environ(log: Path) -> dict[str, str]:
    """Returns variables of the driver's JVM: a locale for names of any files, and Spark's log.

    log4j2.properties takes the log from here: Spark would split a Java option at blanks and quotes.
    In the name of a rolled file, log4j replaces what follows ``%`` or is in ``${}``.
    """
    rolled = str(log).replace("%", "%%").replace("${", "$${")
    return {
        "LC_ALL": FILE_NAMES_LOCALE,
        "_HEADRACE_SPARK_LOG": str(log),
        "_HEADRACE_ROLLED_SPARK_LOG": rolled,
    }


def java_options(options: str, *, cores: int) -> str:
    """The driver's Java options: the user's own, and where the settings of the log are.

    On one or two cores, what the JVM does on threads of its own takes a core from the work. So the
    collector is the serial one, and methods are compiled thoroughly only when they are very hot,
    each unless the user chose.

    A query that is stopped within a batch ends with Python's whole traceback, which Spark searches
    with a recursive pattern: stacks of a megabyte overflow, and the query would not end.
    """
    settings = Path(__file__).with_name("log4j2.properties").as_uri()
    logging = f"-Dlog4j2.configurationFile={settings}"
    few = cores <= FEW_CORES
    collector = "-XX:+UseSerialGC" if few and "-XX:+Use" not in options else ""
    compiler = _COMPILE_LATER if few and "-XX:Tier" not in options else ""
    stack = "" if "-Xss" in options else _STACK
    # The user's own come later and win.
    return " ".join(filter(None, (_WARNINGS, options, collector, compiler, stack, logging)))


def _local(master: str) -> dict[str, str]:
    """On one machine nothing listens beyond loopback, and shuffles are as wide as the cores."""
    if not is_on_this_machine(master):
        return {}
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": str(max(2, os.cpu_count() or 2)),
    }


def is_on_this_machine(master: str) -> bool:
    """Returns whether a master, and so the tasks of its jobs, are on this machine."""
    return master.startswith("local") or "//127.0.0.1" in master or "//localhost" in master
