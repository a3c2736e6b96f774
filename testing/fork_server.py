"""Starts processes by forking, because importing JAX costs each a second of CPU time. Before a fork, JAX has no backend;
after it, the process is one like any other.

    python testing/fork_server.py FD

FD is a socket that listens; forking.py has the other end, and says what a request is: a JSON object on a connection of
its own, with the descriptors of stdin, stdout and stderr. The answers are the process's id and, after its end, its exit
status. The server ends when its stdin closes.
"""

from __future__ import annotations

import atexit
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
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy  # noqa: F401
import ml_dtypes  # noqa: F401
import numpy  # noqa: F401
from jax._src import xla_bridge
from jax.extend.backend import ifrt_proxy  # noqa: F401

import gangway  # noqa: F401

REQUEST_BYTES_MAX = 1 << 20
REQUEST_WAIT_S = 10
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


def receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """A request; None if its sender is gone."""
    connection.settimeout(REQUEST_WAIT_S)
    data, streams, _, _ = socket.recv_fds(connection, REQUEST_BYTES_MAX, 3)
    return (json.loads(data), streams) if data else None


def serve(listener: socket.socket) -> list[str] | None:
    """Answers requests until stdin closes. In a forked child, returns the command to run."""
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    selector.register(0, selectors.EVENT_READ)
    children: list[Child] = []
    while True:
        for key, _ in selector.select():
            if key.fileobj == 0:
                return None
            if key.fileobj is listener:
                connection, _ = listener.accept()
                received = receive(connection)
                if received is None:
                    connection.close()
                    continue
                request, streams = received
                assert not xla_bridge.backends_are_initialized(), "a fork would inherit the backend"
                assert len(os.listdir("/proc/self/task")) == 1, "a fork copies one thread only"
                pid = os.fork()
                if pid == 0:
                    for child in children:
                        os.close(child.pidfd)
                        child.connection.close()
                    selector.close()
                    listener.close()
                    connection.close()
                    return become(request, streams)
                for descriptor in streams:
                    os.close(descriptor)
                connection.send(str(pid).encode())
                children.append(Child(pid, os.pidfd_open(pid), connection))
                selector.register(children[-1].pidfd, selectors.EVENT_READ, children[-1])
                selector.register(connection, selectors.EVENT_READ, children[-1])
                continue
            child = key.data
            if child not in children:  # ended by an event before this one
                continue
            if key.fileobj is child.connection:  # who asked for it is gone
                selector.unregister(child.connection)
                signal.pidfd_send_signal(child.pidfd, signal.SIGKILL)
                continue
            _, status = os.waitpid(child.pid, 0)
            if child.connection in selector.get_map():
                selector.unregister(child.connection)
                child.connection.send(str(os.waitstatus_to_exitcode(status)).encode())
            selector.unregister(child.pidfd)
            os.close(child.pidfd)
            child.connection.close()
            children.remove(child)


def configured(run: Callable[..., Any]) -> Callable[..., Any]:
    """`run`, where JAX has read its variables again."""

    def configure_and_run(*arguments: Any, **options: Any) -> Any:
        for name, value_of in JAX_VARIABLES.items():
            if name in os.environ:
                jax.config.update(name.lower(), value_of(os.environ[name]))  # type: ignore[no-untyped-call]
        return run(*arguments, **options)

    return configure_and_run


def run(command: list[str]) -> None:
    """As `python COMMAND` does."""
    first, *arguments = command
    for path in reversed(os.environ.get("PYTHONPATH", "").split(os.pathsep)):
        if path and path not in sys.path:
            sys.path.insert(1, path)
    if first == "-c":
        sys.argv = ["-c", *arguments[1:]]
        sys.path[0] = ""
        exec(compile(arguments[0], "<string>", "exec"), {"__name__": "__main__"})
    elif first == "-m":
        sys.argv = ["-m", *arguments[1:]]
        sys.path[0] = os.getcwd()
        run_module = runpy.run_module
        runpy.run_module = configured(runpy.run_module)
        runpy.run_path = configured(runpy.run_path)
        run_module(arguments[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = command
        sys.path[0] = os.path.dirname(os.path.abspath(first))
        runpy.run_path(first, run_name="__main__")


def end(status: int) -> None:
    """As the end of a Python, but for what only frees memory: to write to all that the process shares with the server
    would take it 0.1 s of CPU time.
    """
    threading._shutdown()  # type: ignore[attr-defined]  # waits for those that are not daemons
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def main() -> None:
    jax.eval_shape(lambda x: x + 1, jax.ShapeDtypeStruct((1,), "float32"))  # imports lazily
    gc.freeze()
    if command := serve(socket.socket(fileno=int(sys.argv[1]))):
        try:
            run(command)
            status = 0
        except SystemExit as exited:
            if not isinstance(exited.code or 0, int):
                raise
            status = int(exited.code or 0)
        end(status)


if __name__ == "__main__":
    main()
