"""Starts client processes by forking, because importing JAX costs each process a second of CPU time. Before a fork,
JAX has no backend; after it, the client is a process like any other.

    python testing/fork_server.py FD

A request on the socket FD is a JSON object, the client's program (a file, or "-c" and its text) and environment, with four descriptors: the client's
stdin, stdout and stderr, and a pipe that receives its exit status. The answer is the client's process id. The server
ends when the socket closes.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import selectors
import socket
import sys

import jax
import jax.numpy  # noqa: F401
import ml_dtypes  # noqa: F401
import numpy  # noqa: F401
from jax._src import xla_bridge
from jax.extend.backend import ifrt_proxy  # noqa: F401

import gangway  # noqa: F401

REQUEST_BYTES_MAX = 1 << 20


def become_client(request: dict[str, object], descriptors: list[int]) -> list[str]:
    """In the forked child: takes over the client's environment and standard streams; returns its program, and the text if
    that is no file.
    """
    for number, descriptor in enumerate(descriptors[:3]):
        os.dup2(descriptor, number)
    for descriptor in descriptors:
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(request["environment"])  # type: ignore[call-overload]
    program: list[str] = request["program"]  # type: ignore[assignment]
    sys.argv = program[:1]
    return program


def serve(channel: socket.socket) -> list[str] | None:
    """Answers requests until the socket closes. In a forked child, returns the program to run."""
    selector = selectors.DefaultSelector()
    selector.register(channel, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.fileobj is not channel:  # a client has ended
                pid, status_pipe = key.data
                _, status = os.waitpid(pid, 0)
                os.write(status_pipe, str(os.waitstatus_to_exitcode(status)).encode())
                selector.unregister(key.fileobj)
                os.close(status_pipe)
                os.close(key.fd)
                continue
            data, descriptors, _, _ = socket.recv_fds(channel, REQUEST_BYTES_MAX, 4)
            if not data:
                return None
            assert not xla_bridge.backends_are_initialized(), "a fork would inherit the backend"
            assert len(os.listdir("/proc/self/task")) == 1, "a fork copies one thread only"
            pid = os.fork()
            if pid == 0:
                inherited = [k for k in selector.get_map().values() if k.fileobj is not channel]
                for each in inherited:
                    os.close(each.data[1])
                    os.close(each.fd)
                selector.close()
                channel.close()
                return become_client(json.loads(data), descriptors)
            for descriptor in descriptors[:3]:
                os.close(descriptor)
            selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, descriptors[3]))
            channel.send(str(pid).encode())


def main() -> None:
    jax.eval_shape(lambda x: x + 1, jax.ShapeDtypeStruct((1,), "float32"))  # imports lazily
    gc.freeze()
    program = serve(socket.socket(fileno=int(sys.argv[1])))
    if program and program[0] == "-c":
        exec(compile(program[1], "<string>", "exec"), {"__name__": "__main__"})
    elif program:
        runpy.run_path(program[0], run_name="__main__")


if __name__ == "__main__":
    main()
