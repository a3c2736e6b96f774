"""A TCP proxy between two processes of a cluster, whose connections a test can break in every way that a network does:
reset, closed in the middle of a message, seen by one end only, silent in one or both directions, slow.

Each link, one process's connections to one port of another, has a port of its own. A process reaches it because
libgangway_redirect.so (tests/native/redirect.cc) leads its connections there.

Threading: one thread runs all connections; the methods may be called from any other. Memory is bounded: what one end
cannot take is not read from the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import pathlib
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from harness import ROOT
from native_programs import check_built

REDIRECT = ROOT / "build" / "dev" / "tests" / "native" / "libgangway_redirect.so"
LINKS = "GANGWAY_TEST_LINKS"
ABORT = struct.pack("ii", 1, 0)  # SO_LINGER: closing sends a reset
THERE, BACK = "there", "back"  # to the port that the link leads to; to the process that connected
BOTH = (THERE, BACK)
LATE_END_S = 0.1  # how often an end looks whether what is slow before it has arrived


@dataclasses.dataclass(frozen=True)
class Cut:
    """What happens to a link's connections once `after_bytes` more have passed: `kind` is
    reset: both ends see a reset. closed: both ends see an end of the stream, perhaps in the middle of a message.
    half: only the end on the side of `ways` sees a reset; the other end learns nothing until the repair.
    silent: bytes in the directions `ways` do not arrive until the repair. slow: they arrive `delay_s` later.
    """

    kind: str
    ways: tuple[str, ...] = BOTH
    after_bytes: int = 0
    delay_s: float = 0


class _End(asyncio.Protocol):
    """One end of a connection: `way` is the direction of the bytes that it sends to us."""

    def __init__(self, pair: _Pair, way: str) -> None:
        self.pair = pair
        self.way = way
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        transport.set_write_buffer_limits(1 << 20)
        self.pair.opened(self)

    def data_received(self, data: bytes) -> None:
        self.pair.carry(self, data)

    def pause_writing(self) -> None:
        self.pair.other(self).hold(True)

    def resume_writing(self) -> None:
        self.pair.other(self).hold(False)

    def connection_lost(self, _: Exception | None) -> None:
        self.transport = None
        self.pair.ended(self)

    def eof_received(self) -> bool:
        return False  # closes the transport: gRPC does not half-close

    def hold(self, held: bool) -> None:
        if self.transport and not self.transport.is_closing():
            with contextlib.suppress(RuntimeError):
                (self.transport.pause_reading if held else self.transport.resume_reading)()

    def abort(self) -> None:
        """Closes with a reset."""
        if not self.transport:
            return
        raw = self.transport.get_extra_info("socket")
        with contextlib.suppress(OSError):
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ABORT)
        self.transport.abort()


class _Pair:
    """One connection through the proxy."""

    def __init__(self, link: Link, loop: asyncio.AbstractEventLoop) -> None:
        self.link = link
        self.loop = loop
        self.near = _End(self, THERE)
        self.far = _End(self, BACK)
        self.held: dict[str, list[bytes]] = {THERE: [], BACK: []}  # bytes that do not pass yet
        self.late: dict[str, deque[bytes]] = {THERE: deque(), BACK: deque()}  # that arrive later
        self.early: list[bytes] | None = []  # what came before the far end was connected; then None
        self.halved = False  # one end was reset, and the other knows nothing
        self.hidden_end: _End | None = None  # it ended while the link was silent

    def other(self, end: _End) -> _End:
        return self.far if end is self.near else self.near

    def opened(self, end: _End) -> None:
        if end is self.near:
            end.hold(True)
            self.loop.create_task(self._connect())

    async def _connect(self) -> None:
        try:
            await self.loop.create_connection(lambda: self.far, *self.link.target)
        except OSError:
            self.near.abort()
            return
        if not self.near.transport:
            self.far.abort()
            return
        early, self.early = self.early, None
        for data in early or []:
            self.carry(self.near, data)
        self.near.hold(False)

    def carry(self, end: _End, data: bytes) -> None:
        link = self.link
        if self.halved:
            return
        if self.early is not None:  # the hold of a new end has no effect in Python 3.11.2
            self.early.append(data)
            return
        cut = link.armed
        if cut:
            left = cut.after_bytes - link.passed
            link.passed += len(data)
            if left <= len(data):
                self._pass(end, data[: max(left, 0)])
                link.trigger()
                data = data[max(left, 0) :]
        self._pass(end, data)

    def _pass(self, end: _End, data: bytes) -> None:
        cut = self.link.active
        if not data or self.halved:
            return
        if cut and cut.kind == "silent" and end.way in cut.ways:
            self.held[end.way].append(data)
            end.hold(True)
            return
        late = self.late[end.way]
        slow = cut is not None and cut.kind == "slow" and end.way in cut.ways
        if slow or late:  # also what comes after the repair stays behind what is late
            late.append(data)
            self.loop.call_later(cut.delay_s if slow and cut else 0, self._arrive, end)
        else:
            self._write(self.other(end), data)

    def _arrive(self, end: _End) -> None:
        """Passes the oldest piece on; each piece has its call, so that none overtakes another."""
        self._write(self.other(end), self.late[end.way].popleft())

    @staticmethod
    def _write(to: _End, data: bytes) -> None:
        if to.transport and not to.transport.is_closing():
            to.transport.write(data)

    def ended(self, end: _End) -> None:
        cut = self.link.active
        if self.halved:
            return
        if cut and cut.kind == "silent" and end.way in cut.ways:
            self.hidden_end = end
            return
        if self.late[end.way]:
            self.loop.call_later(LATE_END_S, self.ended, end)
            return
        to = self.other(end).transport
        if to:
            to.close()
        else:
            self.link.pairs.discard(self)

    def cut(self, cut: Cut) -> None:
        if cut.kind == "reset":
            self.near.abort()
            self.far.abort()
        elif cut.kind == "closed":
            for end in (self.near, self.far):
                if end.transport:
                    end.transport.close()
        elif cut.kind == "half":
            self.halved = True
            (self.near if cut.ways == (THERE,) else self.far).abort()

    def repair(self) -> None:
        """What one end does not know yet, it learns now: the other end's host would answer its bytes so."""
        if self.halved:
            self.near.abort()
            self.far.abort()
            self.link.pairs.discard(self)
            return
        for end in (self.near, self.far):
            for data in self.held[end.way]:
                self._write(self.other(end), data)
            self.held[end.way] = []
            end.hold(False)
        if self.hidden_end:
            ended, self.hidden_end = self.hidden_end, None
            self.ended(ended)


class Link:
    """The connections of one process to one port. `target` is that port's address."""

    def __init__(self, name: str, target: tuple[str, int]) -> None:
        self.name = name
        self.target = target
        self.pairs: set[_Pair] = set()
        self.armed: Cut | None = None
        self.active: Cut | None = None  # silent or slow
        self.passed = 0
        self.fired = threading.Event()
        self.port = 0

    def trigger(self) -> None:
        cut, self.armed = self.armed, None
        if not cut:
            return
        self.active = cut if cut.kind in ("silent", "slow") else None
        for pair in list(self.pairs):
            pair.cut(cut)
        self.fired.set()


class LinkProxy:
    """All links of a cluster. close() resets what is still open."""

    def __init__(self) -> None:
        check_built("gangway_redirect")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.links: dict[str, Link] = {}
        self._servers: list[asyncio.Server] = []

    def add(self, name: str, target: tuple[str, int]) -> int:
        """Makes a link, and returns the port to connect to."""
        link = Link(name, target)

        def accepted() -> _End:
            pair = _Pair(link, self._loop)
            link.pairs.add(pair)
            return pair.near

        async def listen() -> asyncio.Server:
            return await self._loop.create_server(accepted, "127.0.0.1", 0)

        server = asyncio.run_coroutine_threadsafe(listen(), self._loop).result(10)
        self._servers.append(server)
        link.port = server.sockets[0].getsockname()[1]
        self.links[name] = link
        return link.port

    def environment(self, process: str, targets: dict[str, tuple[str, int]]) -> dict[str, str]:
        """Variables for `process`, which may connect to `targets`, by name: a link for each."""
        ports = [
            f"{target[1]}={self.add(f'{process} to {name}', target)}"
            for name, target in targets.items()
        ]
        return {"LD_PRELOAD": str(REDIRECT), LINKS: ",".join(ports)}

    def connections(self, name: str) -> int:
        return len(self.links[name].pairs)

    def cut(self, name: str, cut: Cut, wait_s: float = 3) -> bool:
        """Breaks the link once `after_bytes` have passed, or after `wait_s`. Returns whether they have passed."""
        link = self.links[name]

        def arm() -> None:
            link.fired.clear()
            link.passed, link.armed = 0, cut
            if not cut.after_bytes:
                link.trigger()

        self._call(arm)
        passed = link.fired.wait(wait_s)
        if not passed:
            self._call(link.trigger)
        return passed

    def repair(self, name: str) -> None:
        link = self.links[name]

        def mend() -> None:
            link.active = link.armed = None
            for pair in list(link.pairs):
                pair.repair()

        self._call(mend)

    def _call(self, function: Callable[[], None]) -> None:
        async def run() -> None:
            function()

        asyncio.run_coroutine_threadsafe(run(), self._loop).result(10)

    def close(self) -> None:
        def end() -> None:
            for server in self._servers:
                server.close()
            for link in self.links.values():
                for pair in list(link.pairs):
                    pair.near.abort()
                    pair.far.abort()

        self._call(end)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


def write_state(folder: pathlib.Path, port: int, token: str) -> None:
    """A state folder in which a client finds the token of the front door behind a link's port, but not its socket."""
    own = folder / str(port)
    own.mkdir(parents=True, exist_ok=True)
    (own / "token").write_text(token)


__all__ = ["BACK", "BOTH", "THERE", "Cut", "LinkProxy", "write_state"]
