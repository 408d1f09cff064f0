"""Python processes of Spark that are forked with their modules loaded, not started.

Spark starts a process for each source of each query, and tests run hundreds of short queries:
importing what it needs is more than half of the work of one. A server, which has imported it once,
forks them instead: ``quick_python`` gives the path of what Spark takes for Python.
"""

import os
import select
import signal
import socket
import sys
from contextlib import contextmanager, suppress

_AS_MAIN = ("pyspark.daemon", "pyspark.sql.streaming.python_streaming_source_runner")
# What Spark's workers import, and the modules of tests whose functions they unpickle. Polars stays
# out: it must not be forked.
_LOADED = (
    "encodings.idna",
    "headrace.pipelines.join.datasource",
    "headrace.sinks.lake.driver",
    "headrace.sinks.profiles.writer",
    "pandas",
    "psycopg",
    "pyarrow.parquet",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.worker",
    "pytest",
    "redis",
    "urllib.request",
)
_STREAMS = (0, 1, 2)


@contextmanager
def quick_python(folder):
    """``with quick_python(folder) as python``: the path of a Python whose modules are loaded."""
    import subprocess

    folder.mkdir()
    address, python = folder / "socket", folder / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -ISE "{__file__}" "{address}" "$@"\n')
    python.chmod(0o755)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(address))
        listener.listen(100)
        number = listener.fileno()
        server = subprocess.Popen(
            [sys.executable, "-m", "tests.quick_python", str(number)],
            # The hashes that Spark's workers agree on; and no threads of numpy, which would fork.
            env=os.environ | {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            pass_fds=[number],
        )
    with server:  # it ends when this end of its input is closed, however this process ends
        yield str(python)


def _ask(address, *arguments):
    """Has the server fork a process with this one's streams and environment, and waits for it."""
    if arguments[0] != "-m":
        os.execv(sys.executable, [sys.executable, *arguments])
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(address)
    request = repr((arguments[1:], dict(os.environ))).encode()
    socket.send_fds(connection, [len(request).to_bytes(4)], _STREAMS)
    connection.sendall(request)
    os._exit((connection.recv(1) or b"\1")[0])


class _Forked(BaseException):
    """Leaves the server's loop in the process that it forked."""


class _Server:
    """Forks a process for each connection, which ends with its connection."""

    def __init__(self, listener):
        self.listener = listener
        self.processes = {}
        self.woken, self.wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def serve(self):
        signal.set_wakeup_fd(self.wake)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        while True:
            ready, _, _ = select.select(
                [0, self.woken, self.listener, *self.processes.values()], [], []
            )
            if 0 in ready:
                for process in self.processes:
                    os.kill(process, signal.SIGTERM)
                return
            if self.woken in ready:
                os.read(self.woken, 1000)
                self.reap()
            for process, connection in list(self.processes.items()):
                if connection in ready:
                    os.kill(process, signal.SIGTERM)
                    self.processes.pop(process).close()
            if self.listener in ready:
                self.fork(self.listener.accept()[0])

    def reap(self):
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                process, status = ended
                if process in self.processes:
                    # Who asked for the process may have ended.
                    with self.processes.pop(process) as connection, suppress(OSError):
                        connection.send(bytes([os.waitstatus_to_exitcode(status) & 255]))

    def fork(self, connection):
        length, streams, _, _ = socket.recv_fds(connection, 4, len(_STREAMS))
        size, request = int.from_bytes(length), b""
        while len(request) < size and (part := connection.recv(size - len(request))):
            request += part
        if not size or len(request) < size:  # who asked has ended meanwhile
            connection.close()
            for stream in streams:
                os.close(stream)
            return
        process = os.fork()
        if process:
            self.processes[process] = connection
            for stream in streams:
                os.close(stream)
            return
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for opened in (self.listener, connection, *self.processes.values()):
            opened.close()
        for stream, target in zip(streams, _STREAMS, strict=True):
            os.dup2(stream, target)
        for number in (self.woken, self.wake, *streams):
            os.close(number)
        raise _Forked(request)


def _serve(listener):
    import ast
    import gc
    import importlib
    import runpy

    for module in (*_LOADED, *_AS_MAIN):
        importlib.import_module(module)
    for module in _AS_MAIN:
        del sys.modules[module]
    gc.freeze()
    try:
        # A process of tests may have more files open than select takes numbers of: here are few.
        _Server(socket.socket(fileno=os.dup(int(listener)))).serve()
    except _Forked as forked:
        (module, *arguments), environment = ast.literal_eval(forked.args[0].decode())
    else:
        return
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [module, *arguments]
    # Spark names a jar of its own, whose directory each process would read: it holds no module.
    path = environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[1:1] = [entry for entry in path if not entry.endswith(".jar")]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    (_serve if len(sys.argv) == 2 else _ask)(*sys.argv[1:])
