"""Notices a front door that stands still (stopped, swapped out), for which jaxlib's client would
wait for ever.

A thread asks the front door for its version every INTERVAL_S, on a connection of its own. If an
answer takes longer than LIMIT_S, which is more than the 10 s for which a cluster may stand still at
no loss, the thread says so on stderr and shuts the session's sockets down. To jaxlib's client, the
connection is then lost: its calls fail, or it aborts the process, as when the front door dies.

Only a connection that has been answered before counts: a front door that is out of file descriptors
takes no new ones, but serves its sessions. A question costs the front door less than 1 ms, and this
process a wake-up every INTERVAL_S; jaxlib's own client wakes 250 times a second.
"""

from __future__ import annotations

import contextlib
import select
import socket
import sys
import threading
import time

from gangway._fork import front_door_sockets
from gangway._front_door import (
    ACK,
    END_STREAM,
    PING,
    PREFACE,
    RESET,
    frame,
    frames,
    version_call,
)

INTERVAL_S = 4.0
LIMIT_S = 11.0
# How long to look again for bytes after the limit: this process itself may have stood still.
AGAIN_S = 1.0
RETRY_S = 0.2  # the front door ends a TCP connection without a session after 10 s


def watch(port: int, host: str, path: str) -> None:
    """Starts the thread, for the front door at the unix socket `path`, or at host:port if it is
    empty. The thread ends with the process, or when it has ended the session.
    """
    thread = threading.Thread(
        target=_run, args=(port, host, path), name="gangway-watch", daemon=True
    )
    thread.start()


def _run(port: int, host: str, path: str) -> None:
    while True:
        with contextlib.suppress(OSError), _connect(port, host, path) as connection:
            if _stands_still(connection):
                break
        time.sleep(RETRY_S)  # jaxlib's client sees for itself that a front door has ended
    print(
        f"gangway: the cluster's front door at {host}:{port} has not answered for {LIMIT_S:g} s: "
        "its process stands still. This session is over: look at `gangway status`, and start the "
        "script again",
        file=sys.stderr,
        flush=True,
    )
    for descriptor in front_door_sockets():
        with contextlib.suppress(OSError):
            session = socket.socket(fileno=descriptor)
            try:
                session.shutdown(socket.SHUT_RDWR)
            finally:
                session.detach()  # jaxlib's client closes it


def _connect(port: int, host: str, path: str) -> socket.socket:
    if not path:
        return socket.create_connection((host, port), LIMIT_S)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(LIMIT_S)
        connection.connect(path)
    except OSError:
        connection.close()
        raise
    return connection


def _stands_still(connection: socket.socket) -> bool:
    """Asks until the connection ends, or until an answer stays out after earlier ones have come."""
    connection.sendall(PREFACE)
    for stream in range(1, 1 << 31, 2):
        connection.sendall(version_call(stream, b"localhost"))
        try:
            if not (_answered(connection, stream) and _idle(connection)):
                return False
        except TimeoutError:
            return stream > 1 and not select.select([connection], [], [], AGAIN_S)[0]
    return False


def _answered(connection: socket.socket, stream: int) -> bool:
    """Waits for the end of the answer on the stream. False: the connection has ended. Raises
    TimeoutError after LIMIT_S.
    """
    for kind, flags, of, payload in frames(connection, time.monotonic() + LIMIT_S):
        _acknowledge(connection, kind, flags, payload)
        if of == stream and (kind == RESET or flags & END_STREAM):
            return True
    return False


def _idle(connection: socket.socket) -> bool:
    """Waits for INTERVAL_S. False, at once: the connection has ended."""
    until = time.monotonic() + INTERVAL_S
    while (left_s := until - time.monotonic()) > 0:
        if not select.select([connection], [], [], left_s)[0]:
            return True
        received = next(frames(connection, time.monotonic() + LIMIT_S), None)
        if not received:
            return False
        kind, flags, _, payload = received
        _acknowledge(connection, kind, flags, payload)
    return True


def _acknowledge(connection: socket.socket, kind: int, flags: int, payload: bytes) -> None:
    if kind == PING and not flags & ACK:
        connection.sendall(frame(PING, ACK, 0, payload))
