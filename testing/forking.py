"""Processes that are forked from a Python that has imported JAX, since the import costs a process a second of CPU time.
Here is what asks the server (fork_server.py) for them; it imports little, because forked_python.py starts with it.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping, Sequence

SERVER = "GANGWAY_FORK_SERVER"  # the variable that holds the path of the server's socket
ANSWER_BYTES_MAX = 32


class Fork:
    """A forked process. It is killed if its connection to the server closes before its end, so also with the process
    that asked for it.

    Args:
      command: as after `python`: a file, or "-c" and a text, or "-m" and a module; then arguments.
      environment: all its variables. JAX reads its own where it is imported, so those have no effect.
      streams: the descriptors of its stdin, stdout and stderr, which this process may close then.
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
        self._connection.connect(os.environ[SERVER])
        socket.send_fds(self._connection, [json.dumps(request).encode()], list(streams))
        self.pid = int(self._connection.recv(ANSWER_BYTES_MAX))
        self.returncode: int | None = None

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Its exit status, negative for a signal, or None if it has not ended after `timeout_s` seconds."""
        if self.returncode is None:
            self._connection.settimeout(timeout_s)
            try:
                self.returncode = int(self._connection.recv(ANSWER_BYTES_MAX))
            except TimeoutError:
                return None
            self._connection.close()
        return self.returncode
