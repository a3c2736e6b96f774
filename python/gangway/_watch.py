"""Notices a front door that stands still (stopped, swapped out), for which jaxlib's client would
wait for ever.

A thread asks the front door for its version every INTERVAL_S, on connections of its own. If an
answer takes longer than LIMIT_S, which is more than the 10 s for which a cluster may stand still at
no loss, the thread says so on stderr and shuts the session's sockets down. To jaxlib's client, the
connection is then lost: its calls fail, or it aborts the process, as when the front door dies.

Only a connection that has been answered before counts: a front door that is out of file descriptors
takes no new ones, but serves its sessions. A front door ends a TCP connection without a session
after 10 s. So over TCP, each question is also asked on a new connection, which takes the old one's
place when it is answered: at no moment is there none that counts. A question costs the front door
less than 1 ms, and this process a wake-up every INTERVAL_S; jaxlib's own client wakes 250 times a
second.
"""

from __future__ import annotations

import contextlib
import functools
import select
import socket
import sys
import threading
import time
from collections.abc import Callable

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
# How long to look again for an answer after the limit: this process itself may have stood still.
AGAIN_S = 1.0
RETRY_S = 0.2  # after a connection that ended, or was never answered


def watch(port: int, host: str, path: str) -> None:
    """Starts the thread, for the front door at the unix socket `path`, or at host:port if it is
    empty. The thread ends with the process, or when it has ended the session.
    """
    thread = threading.Thread(
        target=_run, args=(port, host, path), name="gangway-watch", daemon=True
    )
    thread.start()


def _run(port: int, host: str, path: str) -> None:
    connect = functools.partial(_connect, port, host, path)
    while True:
        with contextlib.suppress(OSError):
            if _stands_still(connect, renews=not path):
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


def _stands_still(connect: Callable[[], socket.socket], renews: bool) -> bool:
    """Asks until the connection ends, or until answers stay out after earlier ones have come.
    Raises OSError where a connection is not taken, is not answered, or ends. `renews`: takes a new
    connection for each question, before the front door ends the old one.
    """
    counts = _ask_anew(connect)
    try:
        while counts.idle():
            counts.ask()
            try:
                if renews:
                    newer = _ask_anew(connect)
                    counts.close()
                    counts = newer
                else:
                    counts.wait_for_answer(LIMIT_S)
            except TimeoutError:
                if not counts.answers_at_last():
                    return True
        return False
    finally:
        counts.close()


def _ask_anew(connect: Callable[[], socket.socket]) -> _Asker:
    """Returns a new connection that has been answered."""
    asker = _Asker(connect())
    try:
        asker.ask()
        asker.wait_for_answer(LIMIT_S)
    except OSError:
        asker.close()
        raise
    return asker


class _Asker:
    """A connection on which the front door is asked for its version."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._stream = -1  # of the last question

    def close(self) -> None:
        self._connection.close()

    def ask(self) -> None:
        preface = PREFACE if self._stream < 0 else b""
        self._stream += 2
        self._connection.sendall(preface + version_call(self._stream, b"localhost"))

    def wait_for_answer(self, limit_s: float) -> None:
        """Returns at the end of the last question's answer. Raises TimeoutError after `limit_s`,
        and ConnectionError if the connection ends.
        """
        for kind, flags, stream, payload in frames(self._connection, time.monotonic() + limit_s):
            self._acknowledge(kind, flags, payload)
            if stream == self._stream and (kind == RESET or flags & END_STREAM):
                return
        raise ConnectionResetError

    def idle(self) -> bool:
        """Waits for INTERVAL_S. False, at once: the connection has ended."""
        until = time.monotonic() + INTERVAL_S
        while (left_s := until - time.monotonic()) > 0:
            if not select.select([self._connection], [], [], left_s)[0]:
                return True
            received = next(frames(self._connection, time.monotonic() + LIMIT_S), None)
            if not received:
                return False
            kind, flags, _, payload = received
            self._acknowledge(kind, flags, payload)
        return True

    def answers_at_last(self) -> bool:
        """Whether the last question has been answered, after another limit has elapsed."""
        try:
            self.wait_for_answer(AGAIN_S)
        except TimeoutError:
            return False
        return True

    def _acknowledge(self, kind: int, flags: int, payload: bytes) -> None:
        if kind == PING and not flags & ACK:
            self._connection.sendall(frame(PING, ACK, 0, payload))
