"""Starts processes by forking, because importing JAX costs each a second of CPU time. Before a fork, JAX has no
backend; after it, the process is one like any other.

    python testing/fork_server.py FD

FD is a socket that listens; forking.py has the other end. On each connection comes a request, a JSON object with the
descriptors of stdin, stdout and stderr, and then the numbers of signals for the process. The answers are its id and,
after its end, its exit status; or a text that says why there is no process. The server ends when its stdin closes.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import gc
import json
import os
import runpy
import selectors
import signal
import socket
import sys
import threading
import types
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy  # noqa: F401
import ml_dtypes  # noqa: F401
import numpy  # noqa: F401
from jax._src import source_info_util, xla_bridge
from jax.extend.backend import ifrt_proxy  # noqa: F401
from jaxlib.mlir.dialects import builtin, mhlo  # noqa: F401

import gangway  # noqa: F401

source_info_util.is_user_filename("")  # compiles its pattern here, and not in each fork

MESSAGE_BYTES_MAX = 1 << 20
# The variables that lead JAX to a cluster: `python -m gangway.run` sets them, and JAX has read them by then.
JAX_VARIABLES: dict[str, Callable[[str], object]] = {
    "JAX_PLATFORMS": str,
    "JAX_BACKEND_TARGET": str,
    "JAX_ENABLE_COMPILATION_CACHE": "true".__eq__,
}


@dataclasses.dataclass
class Child:
    pid: int
    pidfd: int
    connection: socket.socket


def become(request: dict[str, Any], streams: list[int]) -> list[str]:
    """In the forked child: takes over environment, folder and standard streams; returns the command."""
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    command: list[str] = request["command"]
    return command


def answer(connection: socket.socket, text: object) -> None:
    with contextlib.suppress(OSError):  # the requester has ended
        connection.send(str(text).encode())


class Server:
    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ)
        self._selector.register(0, selectors.EVENT_READ)
        self._children: dict[socket.socket, Child] = {}  # by connection

    def serve(self) -> list[str] | None:
        """Answers requests until stdin closes. In a forked child, returns the command to run."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj == 0:
                    return None
                if key.fileobj is self._listener:
                    connection, _ = self._listener.accept()
                    self._selector.register(connection, selectors.EVENT_READ)
                elif isinstance(key.fileobj, socket.socket):
                    if command := self._receive(key.fileobj):
                        return command
                else:
                    self._end(key.data)

    def _receive(self, connection: socket.socket) -> list[str] | None:
        """A request, a signal, or the end of the requester. In a forked child, returns the command to run."""
        if connection.fileno() == -1:  # closed by an event before this one
            return None
        try:
            data, streams, _, _ = socket.recv_fds(connection, MESSAGE_BYTES_MAX, 3)
        except OSError:
            data, streams = b"", []
        child = self._children.get(connection)
        if child:
            signal.pidfd_send_signal(child.pidfd, int(data) if data else signal.SIGKILL)
        if not data:
            self._selector.unregister(connection)
            if not child:
                connection.close()
        elif not child:
            return self._fork(connection, json.loads(data), streams)
        return None

    def _fork(
        self, connection: socket.socket, request: dict[str, Any], streams: list[int]
    ) -> list[str] | None:
        try:
            assert not xla_bridge.backends_are_initialized(), "a fork would inherit the backend"
            assert len(os.listdir("/proc/self/task")) == 1, "a fork copies one thread only"
            pid = os.fork()
        except (AssertionError, OSError) as error:
            answer(connection, error)
        else:
            if pid == 0:
                for each in self._children.values():
                    os.close(each.pidfd)
                for key in [*self._selector.get_map().values()]:
                    if isinstance(key.fileobj, socket.socket):
                        key.fileobj.close()
                self._selector.close()
                return become(request, streams)
            child = Child(pid, os.pidfd_open(pid), connection)
            self._children[connection] = child
            self._selector.register(child.pidfd, selectors.EVENT_READ, child)
            answer(connection, pid)
        for descriptor in streams:
            os.close(descriptor)
        return None

    def _end(self, child: Child) -> None:
        _, status = os.waitpid(child.pid, 0)
        answer(child.connection, os.waitstatus_to_exitcode(status))
        if child.connection in self._selector.get_map():
            self._selector.unregister(child.connection)
        child.connection.close()
        self._selector.unregister(child.pidfd)
        os.close(child.pidfd)
        del self._children[child.connection]


def run_module(name: str) -> None:
    """Runs the module as __main__. What it runs by runpy then finds that JAX has read its variables again."""
    originals = runpy.run_module, runpy.run_path

    def configured(original: Callable[..., Any]) -> Callable[..., Any]:
        def configure_and_run(*arguments: Any, **options: Any) -> Any:
            runpy.run_module, runpy.run_path = originals
            for variable, value_of in JAX_VARIABLES.items():
                if variable in os.environ:
                    value = value_of(os.environ[variable])
                    jax.config.update(variable.lower(), value)  # type: ignore[no-untyped-call]
            return original(*arguments, **options)

        return configure_and_run

    runpy.run_module, runpy.run_path = configured(originals[0]), configured(originals[1])
    originals[0](name, run_name="__main__", alter_sys=True)


def run(command: list[str]) -> object:
    """Runs what `python COMMAND` runs. The result keeps its variables alive."""
    first, *arguments = command
    for path in reversed(os.environ.get("PYTHONPATH", "").split(os.pathsep)):
        if path and path not in sys.path:
            sys.path.insert(1, path)
    if first == "-c":
        sys.argv = ["-c", *arguments[1:]]
        sys.path[0] = ""
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(arguments[0], "<string>", "exec", dont_inherit=True), main.__dict__)
        return main
    if first == "-m":
        sys.argv = ["-m", *arguments[1:]]
        sys.path[0] = os.getcwd()
        run_module(arguments[0])
        return None
    sys.argv = command
    sys.path[0] = os.path.dirname(os.path.abspath(first))
    return runpy.run_path(first, run_name="__main__")


def end(status: int) -> None:
    """Ends the process as a Python ends, but frees no memory: that writes to pages that it shares with the server, and
    takes 0.1 s of CPU time.
    """
    threading._shutdown()  # type: ignore[attr-defined]  # waits for those that are not daemons
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream and not stream.closed:
            stream.flush()
    os._exit(status)


def main() -> None:
    jax.eval_shape(lambda x: x + 1, jax.ShapeDtypeStruct((1,), "float32"))  # imports lazily
    gc.freeze()
    command = Server(socket.socket(fileno=int(sys.argv[1]))).serve()
    if not command:
        return
    try:
        kept: object = run(command)
        end(0)
    except SystemExit as exited:
        if not isinstance(exited.code or 0, int):
            raise
        kept = exited
        end(int(exited.code or 0))
    del kept


if __name__ == "__main__":
    main()
