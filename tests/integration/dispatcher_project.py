"""A project with a dispatcher, run as users run it, or on the Spark of the tests."""

import copy
import json
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import confluent_kafka
from tests.in_process import invoke
from tests.integration import instance_thread
from tests.kafka_topics import make_topic
from tests.waiting import FLUSH_SECONDS, LIMIT_SECONDS, wait_for

from headrace import Dispatcher, DispatchMode
from headrace.kafka.client.clients import client_config, connected_producer, consumer
from headrace.links.dispatcher.run import dispatcher_run
from headrace.project.check import load_project
from headrace.service.run import RunOptions
from headrace.settings import load_settings
from headrace.settings.model import KafkaSettings

HEADRACE = (sys.executable, "-m", "headrace.cli")
BEGAN_MS = int(time.time() * 1000) - 60_000
PARTITIONS = 2


def _source(value):
    return f"DispatchMode.{value.name}" if isinstance(value, DispatchMode) else repr(value)


class DispatcherProject:
    """Sites central (its own), waw and par; the topic `clicks` goes to `events` at the others.

    Each run is a process with its own Spark.
    """

    def __init__(self, folder, servers, name, *, partitions=PARTITIONS, **options):
        self.folder, self.name, self.partitions = folder, name, partitions
        self.configs = {
            site: client_config(KafkaSettings(), address) for site, address in servers.items()
        }
        self.options = {"targets": dict.fromkeys(("waw", "par"), self.target)} | options
        folder.mkdir(parents=True, exist_ok=True)
        sites = "".join(
            f'[sites.{site}.kafka]\nbootstrap_servers = "{address}"\n'
            for site, address in servers.items()
            if site != "central"
        )
        (folder / "headrace.toml").write_text(
            '[project]\nname = "dispatched"\nsite = "central"\nmodules = ["flow"]\n\n'
            f'[kafka]\nbootstrap_servers = "{servers["central"]}"\n'
            f'[spark.config]\n"spark.driver.memory" = "512m"\n{sites}'
        )
        arguments = ", ".join(f"{key}={_source(value)}" for key, value in self.options.items())
        (folder / "flow.py").write_text(
            "import datetime\n"
            "from headrace import Dispatcher, DispatchMode, Home, Topic\n"
            f'clicks = Topic("{name}", partitions={partitions})\n'
            f'dispatch = Dispatcher("dispatch", clicks, {arguments})\n'
        )

    @property
    def target(self):
        """The topic at the targets."""
        return f"{self.name}.events"

    def elsewhere(self, folder):
        """The same project on another machine."""
        copied = copy.copy(self)
        copied.folder = folder
        ignored = shutil.ignore_patterns(".headrace", folder.name)
        shutil.copytree(self.folder, folder, ignore=ignored)
        return copied

    def make_topics(self):
        make_topic(self.configs["central"], self.name, self.partitions)
        for site, topic in self.options["targets"].items():
            make_topic(self.configs[site], topic, self.partitions)

    def write(self, numbers, partition=0, headers=(), **event):
        """Events `n`, each with key `k<n>`."""
        sender = connected_producer(self.configs["central"])
        for n in numbers:
            sender.produce(
                self.name,
                json.dumps({"n": n} | event).encode(),
                f"k{n}".encode(),
                partition,
                timestamp=BEGAN_MS + n,
                headers=list(headers),
            )
        assert sender.flush(FLUSH_SECONDS) == 0

    def records(self, site, partition=0):
        """Key, value and headers of all records of a partition at a site."""
        reader = consumer(self.configs[site])
        topic = self.options["targets"][site]
        reader.assign([confluent_kafka.TopicPartition(topic, partition, 0)])
        rows = []
        while (message := reader.poll(LIMIT_SECONDS)) is not None:
            if message.error() is not None:
                assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
                break
            rows.append((message.key(), message.value(), message.headers() or []))
        reader.close()
        return rows

    def numbers(self, site, partition=0):
        return [json.loads(value)["n"] for _, value, _ in self.records(site, partition)]

    def until(self, site, numbers, partition=0):
        """Waits until exactly these have come."""
        wait_for(
            lambda: self.numbers(site, partition) == list(numbers),
            lambda: f"{list(numbers)} at {site}; there are {self.numbers(site, partition)}",
        )

    def command(self, *arguments, exit_code=0):
        ended = subprocess.run(
            (*HEADRACE, *arguments),
            check=False,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
        )
        assert ended.returncode == exit_code, ended.stdout + ended.stderr
        return ended.stdout + ended.stderr

    def once(self, *arguments, exit_code=0):
        return self.command(
            "dispatcher", "run", "dispatch", "--once", *arguments, exit_code=exit_code
        )

    def statuses(self):
        return json.loads(self.command("status", "--json"))["dispatchers"]

    def _states(self, site):
        """Of all instances; one that was refused at its start has none."""
        return [one["sites"][site]["state"] for one in self.statuses() if site in one["sites"]]

    def until_state(self, site, state):
        wait_for(lambda: state in self._states(site), lambda: f"{state!r} in {self._states(site)}")

    def until_running(self, pid):
        """Waits until the instance of a process sends records."""
        wait_for(
            lambda: any(
                status["instance"].endswith(f"-{pid}") and status["state"] == "running"
                for status in self.statuses()
            )
        )

    @contextmanager
    def running(self, *arguments, end=signal.SIGTERM, exit_codes=(0, -signal.SIGKILL)):
        log = (self.folder / "run.log").open("ab")
        process = subprocess.Popen(
            (*HEADRACE, "dispatcher", "run", "dispatch", *arguments),
            cwd=self.folder,
            stdout=log,
            stderr=log,
        )
        try:
            yield process
        finally:
            process.send_signal(end)
            code = process.wait(LIMIT_SECONDS)
            log.close()
            text = (self.folder / "run.log").read_text()
        assert code in exit_codes, text


class DispatcherInProcess(DispatcherProject):
    """Runs in the process of the tests, on their Spark: it has a core for each of two partitions.

    A query that is stopped has committed what its last batch has sent, as one that is killed.
    """

    def command(self, *arguments, exit_code=0):
        return invoke(*arguments, "--project", self.folder, code=exit_code).output

    def running(self, exit_codes=(0,)):
        project = load_project(load_settings(self.folder, environ={}))
        run = dispatcher_run(project, project.declared(Dispatcher)["dispatch"], RunOptions())
        return instance_thread.running(run, exit_codes)
