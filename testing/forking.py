"""Processes that are forked from a Python that has imported JAX, since the import costs a process a second of CPU time.
This module asks the server (fork_server.py) for them; it imports little, because forked_python.py starts with it.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping, Sequence

SERVER = "GANGWAY_FORK_SERVER"  # the variable that holds the path of the server's socket
PYTHON_OF_SERVER = (
    "GANGWAY_FORK_PYTHON"  # the variable that holds the path of the Python that it runs in
)
ANSWER_BYTES_MAX = 1000
ANSWER_WAIT_S = 300  # the server may have to start first, on a busy machine


class Fork:
    """A forked process. It is killed if its connection to the server closes before its end, so also with the process
    that asked for it.

    Args:
      command: as after `python`: a file, or "-c" and a text, or "-m" and a module; then arguments.
      environment: all its variables. JAX reads its own where it is imported, so those have no effect.
      streams: the descriptors of its stdin, stdout and stderr, which this process may close then.

    Raises:
      RuntimeError: the server has ended, or cannot fork.
    """

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], streams: Sequence[int]
    ) -> None:
        request = {
            "command": list(command),
            "environment": dict(environment),
            "folder": os.getcwd(),
        }
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._connection.settimeout(ANSWER_WAIT_S)
        try:
            self._connection.connect(os.environ[SERVER])
            socket.send_fds(self._connection, [json.dumps(request).encode()], list(streams))
            self.pid = int(self._answer())
        except (OSError, ValueError) as error:
            self._connection.close()
            raise RuntimeError(
                f"the server at {os.environ[SERVER]} forks nothing: {error}"
            ) from error
        self.returncode: int | None = None

    def _answer(self) -> str:
        try:
            answer = self._connection.recv(ANSWER_BYTES_MAX)
        except (
            ConnectionResetError
        ):  # it closed without having read a signal; what it said before is there
            answer = self._connection.recv(ANSWER_BYTES_MAX)
        if not answer:
            raise ConnectionAbortedError("the fork server has ended")
        return answer.decode()

    def send_signal(self, number: int) -> None:
        """Has no effect after the end of the process."""
        if self.returncode is None:
            self._connection.send(str(int(number)).encode())

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Its exit status, negative for a signal, or None if it has not ended after `timeout_s` seconds."""
        if self.returncode is None:
            self._connection.settimeout(timeout_s)
            try:
                self.returncode = int(self._answer())
            except TimeoutError:
                return None
            self._connection.close()
        return self.returncode
