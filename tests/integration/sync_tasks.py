"""Tasks that another process can import."""

import os
from pathlib import Path

from headrace.workers import BatchWorkerTask, InvalidRecordError, WorkerTask


class Busy(WorkerTask):
    """Sends on what it gets, with the process and the lane it was in."""

    def init(self, subpartition, config):
        self.lane, self.output = subpartition.index, config["output"]

    def process(self, record):
        if record.value == b"13":
            raise InvalidRecordError("unlucky", "it is 13")
        self.send(self.output, b"%d %d" % (os.getpid(), self.lane), key=record.value)


class Squares(BatchWorkerTask):
    def init(self, subpartition, config):
        self.output = config["output"]

    def process_batch(self, records):
        for value in records.column("value").to_pylist():
            self.send(self.output, b"%d" % (int(value) ** 2), key=value)


class Dying(WorkerTask):
    def process(self, record):
        if record.offset == 3:
            os._exit(1)


class Endless(WorkerTask):
    def process(self, record):
        while True:
            Path("/proc/self/stat").read_text()
