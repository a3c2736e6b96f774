"""Strangers at the JAX front door: connections and streams without the token, or which send nothing, cost the
head a bounded number of threads, descriptors and bytes, keep no client out, and are gone in the end. Each test waits
until the token's limit has passed, so each is a scene (testing/scenes.py).
"""

from __future__ import annotations

import base64
import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable

import pytest
from harness import PATIENCE, Client, wait_for
from scenes import Outcome, Stage, perform_selected, scene
from test_exhaustion import resident_bytes

pytestmark = pytest.mark.timeout(250)  # the first test performs all scenes
TOGETHER_MAX = 6
STREAMS = 3000
STREAMS_EACH = 50  # of the connections which share STREAMS
SESSION = b"/xla.ifrt.proxy.GrpcIfrtService/IfrtSession"
MIB = 1 << 20
# The limits of the front door (gangway/frontdoor/ifrt/doorkeeper.h), with room for the pools of gRPC.
STRANGERS_MAX, TOKEN_LIMIT_S = 128, 10
THREADS_MORE, BYTES_MORE = 16, 512 * MIB
DESCRIPTORS_MORE = 2 * STRANGERS_MAX + 144  # gRPC closes those which made room a little later

DATA, HEADERS, RESET = 0, 1, 3


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return (
        len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload
    )


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"")


def field(number: int, data: bytes) -> bytes:
    return bytes([number << 3 | 2, len(data)]) + data


def open_stream(stream: int, token: str) -> bytes:
    """A call of IfrtSession whose initialization data holds `token`; empty: none."""

    def literal(name: bytes, value: bytes) -> bytes:
        size = bytes([len(value)]) if len(value) < 127 else bytes([127, len(value) - 127])
        return b"\x00" + bytes([len(name)]) + name + size + value

    metadata = field(1, b"\x08\x19\x10\x03")  # version {protocol 25, serdes 3}
    if token:
        entry = field(1, b"gangway_token") + field(2, field(1, token.encode()))
        metadata += field(2, field(1, entry))
    said = base64.b64encode(metadata).rstrip(b"=")
    return frame(
        HEADERS,
        0x4,
        stream,
        b"\x83\x86"
        + literal(b":path", SESSION)
        + literal(b":authority", b"localhost")
        + literal(b"content-type", b"application/grpc")
        + literal(b"te", b"trailers")
        + literal(b"ifrt-proxy-grpc-ifrt-session-metadata-bin", said),
    )


class Strangers:
    """Connections to a front door that are kept open. A thread reads what the front door sends."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.connections: list[socket.socket] = []

    def connect(self, data: bytes) -> None:
        connection = socket.create_connection(("127.0.0.1", self._port), 10 * PATIENCE)
        self.connections.append(connection)
        with contextlib.suppress(OSError):  # the front door has closed it
            connection.sendall(data)

    def closed(self) -> int:
        """How many of them the front door has closed."""
        count = 0
        for connection in self.connections:
            connection.setblocking(False)
            try:
                while data := connection.recv(1 << 16):
                    assert data
                count += 1
            except BlockingIOError:
                pass
            except OSError:
                count += 1
        return count

    def close(self) -> None:
        for connection in self.connections:
            connection.close()


class Peaks(threading.Thread):
    """The largest numbers of threads, descriptors and resident bytes of a process while the block runs."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid, self._end = pid, threading.Event()
        self.before = self.now()
        self.most = dict(self.before)

    def now(self) -> dict[str, int]:
        return {
            "threads": len(os.listdir(f"/proc/{self._pid}/task")),
            "descriptors": len(os.listdir(f"/proc/{self._pid}/fd")),
            "bytes": resident_bytes(self._pid),
        }

    def run(self) -> None:
        while not self._end.wait(0.02):
            self.most = {name: max(self.most[name], count) for name, count in self.now().items()}

    def __enter__(self) -> Peaks:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self.join()

    def more(self) -> dict[str, int]:
        return {name: self.most[name] - self.before[name] for name in self.most}


def no_token(strangers: Strangers) -> None:
    for first in range(0, STREAMS, STREAMS_EACH):
        strangers.connect(
            PREFACE + b"".join(open_stream(2 * i + 1, "") for i in range(STREAMS_EACH))
        )
        assert first < STREAMS


def no_token_on_one_connection(strangers: Strangers) -> None:
    strangers.connect(PREFACE + b"".join(open_stream(2 * i + 1, "") for i in range(STREAMS)))


def a_wrong_token(strangers: Strangers) -> None:
    for _ in range(STREAMS // STREAMS_EACH):
        strangers.connect(
            PREFACE + b"".join(open_stream(2 * i + 1, "0" * 64) for i in range(STREAMS_EACH))
        )


def silence(strangers: Strangers) -> None:
    for _ in range(STREAMS // 5):
        strangers.connect(b"")


def half_a_message(strangers: Strangers) -> None:
    """A message of which 16 MiB of 1 GB come, on many connections at once."""
    message = b"\x00" + (10**9).to_bytes(4, "big") + b"x" * 10_000
    for _ in range(200):
        strangers.connect(PREFACE + open_stream(1, "0" * 64) + frame(DATA, 0, 1, message))
        strangers.connections[-1].setblocking(False)
        for _ in range(1024):
            try:
                if strangers.connections[-1].send(frame(DATA, 0, 1, b"x" * 16384)) < 16384:
                    break
            except OSError:
                break


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Outcome]:
    return perform_selected(request, tmp_path_factory.mktemp("scenes"), TOGETHER_MAX)


@pytest.mark.parametrize(
    "come", [no_token, no_token_on_one_connection, a_wrong_token, silence, half_a_message]
)
@scene
def test_strangers_cost_little_and_keep_no_client_out_SE_1(
    stage: Stage, come: Callable[[Strangers], None]
) -> None:
    script = stage.folder / "sum.py"
    script.write_text(
        "import jax, numpy as np\nassert float(jax.device_put(np.ones(8)).sum()) == 8\n"
    )
    cluster = stage.new_cluster(1, 1, 1).start()
    # The strangers keep their ends until the cluster is as it was: it must not wait for them.
    with contextlib.closing(Strangers(cluster.port)) as strangers, cluster.left_as_found():
        stage.begin()
        with Peaks(cluster.head_pid) as peaks:
            began = time.monotonic()
            come(strangers)
            assert not cluster.status()["sessions"], "a stranger got a session"
            client = Client(script, cluster.port)
            try:
                assert client.wait(50 * PATIENCE) == 0, "a client with the token: see stderr"
            finally:
                client.close()
            wait_for(
                "every stranger closed",
                lambda: strangers.closed() == len(strangers.connections),
                began + TOKEN_LIMIT_S + 5 - time.monotonic(),
            )
    more = peaks.more()
    stage.say(more, f"all closed {time.monotonic() - began:.1f} s after the first")
    assert more["threads"] <= THREADS_MORE, more
    assert more["descriptors"] <= DESCRIPTORS_MORE, more
    assert more["bytes"] <= BYTES_MORE, more


@scene
def test_a_client_over_loopback_stays_beyond_the_limits_of_strangers(stage: Stage) -> None:
    cluster = stage.new_cluster(1, 1, 1).start()
    script = stage.folder / "stays.py"
    script.write_text(
        "import os, time\n"
        f"os.environ['GANGWAY_STATE_DIR'] = {str(stage.folder)!r}\n"  # without the unix socket
        f"os.environ['GANGWAY_TOKEN'] = {cluster.token!r}\n"
        "import jax, numpy as np\n"
        "data = np.ones(16 << 20, np.float32)\n"
        "def use(): assert float(jax.device_put(data).sum()) == data.size\n"
        "for _ in range(6): use()\n"  # more bytes than strangers may send
        f"time.sleep({TOKEN_LIMIT_S + 2})\n"
        "use()\n"
    )
    with cluster.left_as_found():
        stage.begin()
        client = Client(script, cluster.port)
        try:
            assert client.wait(60 * PATIENCE) == 0, "the client: see stderr"
        finally:
            client.close()
