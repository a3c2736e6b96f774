"""Checks within a deadline that a JAX front door listens on a port, before JAX's client connects.

JAX's client silently retries a wrong port until its timeout, and aborts the process on an
unsupported version. So this module first makes one gRPC call (`GetVersion`), encoded as HTTP/2
frames by hand, because the package depends only on JAX. (Frames: RFC 9113 section 4; header
literals: RFC 7541 section 6.2.2; gRPC over HTTP/2: the length-prefixed message.)
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator

from gangway._errors import GangwayError, NotAFrontDoorError, NothingListeningError

DEFAULT_PORT = 38600
_METHOD = b"/xla.ifrt.proxy.GrpcIfrtService/GetVersion"
_DATA, _HEADERS, RESET, _SETTINGS, PING, _GOAWAY = 0, 1, 3, 4, 6, 7
ACK = 0x1
END_STREAM, _END_HEADERS = 0x1, 0x4
_FRAME_BYTES_MAX = 1 << 20


def default_port() -> int:
    """`GANGWAY_PORT`, or 38600."""
    text = os.environ.get("GANGWAY_PORT", "")
    if not text:
        return DEFAULT_PORT
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 65536:
        raise GangwayError(
            f"GANGWAY_PORT={text!r} is not a port: set it to a number from 1 to 65535, or unset it"
        )
    return int(text)


def check_front_door(port: int, host: str = "127.0.0.1", timeout_s: float = 10.0) -> None:
    """Returns if a front door answers at host:port. Otherwise raises within about `timeout_s`, with
    the reason.
    """
    where = f"{host}:{port}"
    try:
        connection = socket.create_connection((host, port), timeout_s)
    except OSError as error:
        raise NothingListeningError(
            f"no Gangway cluster listens on {where} ({error.strerror or error}): start one with "
            f"`gangway up --port {port}`, or give a running one's port (--port or GANGWAY_PORT)"
        ) from error
    with connection:
        try:
            connection.sendall(PREFACE + version_call(1, where.encode()))
            problem = _verdict(frames(connection, time.monotonic() + timeout_s))
        except TimeoutError:
            problem = (
                f"it accepted the connection but did not answer within {timeout_s:g} s (if it is a "
                "front door, it is stopped or out of file descriptors: see its log)"
            )
        except OSError as error:
            problem = f"it closed the connection ({error.strerror or error})"
    if problem:
        raise NotAFrontDoorError(
            f"the process that listens on {where} is not a Gangway front door: {problem}. Another "
            "program may own that port: choose a free one with `gangway up --port`, or give the "
            "port of a running cluster"
        )


def version_call(stream: int, authority: bytes) -> bytes:
    """The frames of a call of `GetVersion`. `stream`: an odd number, new to the connection."""

    def literal(name: bytes, value: bytes) -> bytes:
        return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value

    headers = (
        b"\x83\x86"  # :method POST and :scheme http, from the static table
        + literal(b":path", _METHOD)
        + literal(b":authority", authority)
        + literal(b"content-type", b"application/grpc")
        + literal(b"te", b"trailers")
    )
    # GetVersionRequest: min_version and max_version, each {protocol, serdes}. This range accepts
    # every version.
    lowest, highest = b"\x08\x00\x10\x00", b"\x08\xff\xff\xff\xff\x07\x10\xff\xff\xff\xff\x07"
    message = b"\x0a" + bytes([len(lowest)]) + lowest + b"\x12" + bytes([len(highest)]) + highest
    body = b"\x00" + len(message).to_bytes(4, "big") + message
    return frame(_HEADERS, _END_HEADERS, stream, headers) + frame(_DATA, END_STREAM, stream, body)


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return (
        len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload
    )


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(_SETTINGS, 0, 0, b"")


def frames(connection: socket.socket, deadline: float) -> Iterator[tuple[int, int, int, bytes]]:
    """Yields (kind, flags, stream, payload) of each received frame, until the peer closes. Raises
    TimeoutError at the deadline.
    """

    def read(count: int) -> bytes:
        data = b""
        while len(data) < count:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise TimeoutError
            connection.settimeout(left_s)
            chunk = connection.recv(count - len(data))
            if not chunk:
                return b""
            data += chunk
        return data

    while header := read(9):
        size = int.from_bytes(header[:3], "big")
        payload = read(size) if 0 < size <= _FRAME_BYTES_MAX else b""
        yield header[3], header[4], int.from_bytes(header[5:], "big") & 0x7FFFFFFF, payload
        if len(payload) < size:
            return


def _verdict(frames: Iterator[tuple[int, int, int, bytes]]) -> str:
    """Why the peer is not a front door; empty if it is one."""
    first = True
    for kind, flags, stream, payload in frames:
        if first and kind != _SETTINGS:
            return "it does not speak gRPC"
        first = False
        if stream == 1 and kind == _DATA and len(payload) >= 5:
            return ""
        if stream == 1 and (kind == RESET or (kind == _HEADERS and flags & END_STREAM)):
            return "it speaks gRPC, but does not serve JAX's IFRT proxy protocol"
        if kind == _GOAWAY:
            return "it speaks HTTP/2, but refused the connection"
    return "it does not speak gRPC" if first else "it closed the connection without an answer"
