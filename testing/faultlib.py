"""Shared parts of the fault tests: a client that executes statements on request, devices that can be
blocked, a network that can be cut in one direction, and a gate before the start of a worker.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import queue
import re
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from harness import GANGWAY, PATIENCE, ROOT, Client, Cluster, client_environment, wait_for
from native_programs import check_built

BLOCKING_PLUGIN = ROOT / "build" / "dev" / "tests" / "native" / "libgangway_blocking_plugin.so"
# Where the kernel waits for the other end of a FIFO, as /proc/PID/task/TID/wchan names it.
FIFO_WAITS = {"wait_for_partner", "fifo_open"}
# What the real plugin puts before the text of a handler or a launch that failed.
PLUGIN_TEXT = re.compile(
    "Error dispatching computation|Compute error|FFI call failed|CpuCallback|CustomCall"
)
# The cause of a failed Execute of a Blocker.
REFUSED = "INVALID_ARGUMENT: Execution supplied . arguments but compiled program expected ."
os.environ["GANGWAY_SIMULATED_WORK"] = (
    "1"  # the devices of clusters that are started from now on offer it
)
# In a session: a program on an array, which holds its device for a minute and costs no CPU.
A_MINUTE = """
def ten_seconds(i, x):
    work = jax.ffi.ffi_call("gangway_simulated_work", [jax.ShapeDtypeStruct(x.shape, x.dtype)] * 2)
    return work(x, x, microseconds=np.int64(10_000_000))[1]
@jax.jit
def a_minute(x):
    return jax.lax.fori_loop(0, 6, ten_seconds, x)
"""


class Reachable(Protocol):
    @property
    def port(self) -> int: ...


@contextlib.contextmanager
def full_disk(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Mounts a file system of 16 KiB inside `folder`. Needs root, or sudo without a password."""
    full = folder / "full"
    full.mkdir()
    sudo = [] if os.geteuid() == 0 else ["sudo", "-n"]
    mount = [*sudo, "mount", "-t", "tmpfs", "-o", "size=16k,mode=0700", "none", str(full)]
    subprocess.run(mount, check=True)
    try:
        yield full
    finally:
        subprocess.run([*sudo, "umount", "-l", str(full)], check=True)


class Console:
    """A live client process that executes one statement at a time for a test (console.py)."""

    def __init__(
        self,
        cluster: Reachable,
        ready_s: float = 30,
        door: str = "ifrt",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._process = Client(ROOT / "testing" / "console.py", cluster.port, door, environment)
        self._answers: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.pid = self._process.pid
        self.device_ids = self.answer(ready_s)["ok"]

    def _read(self) -> None:
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put("")

    def send(self, statement: str) -> None:
        self._process.stdin.write(statement + "\n")
        self._process.stdin.flush()

    def answer(self, timeout_s: float) -> dict[str, Any]:
        line = self._answers.get(timeout=timeout_s * PATIENCE)
        assert line, f"the client ended with status {self._process.wait(5)}"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def answered(self) -> bool:
        """Whether an answer has come that `answer` returns at once."""
        return not self._answers.empty()

    def ask(self, statement: str, timeout_s: float = 20) -> dict[str, Any]:
        self.send(statement)
        return self.answer(timeout_s)

    def do(self, statement: str, timeout_s: float = 20) -> Any:
        answer = self.ask(statement, timeout_s)
        assert "ok" in answer, answer
        return answer["ok"]

    def __enter__(self) -> Console:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._reader.join(5 * PATIENCE)  # it reads until the process has ended
        self._process.close()


class Blocker:
    """Blocks threads that call Execute, in the processes of a cluster that runs the blocking plugin
    (native/blocking_plugin.cc).
    """

    FLAGS = ("--plugin", str(BLOCKING_PLUGIN))

    def __init__(self, cluster: Cluster) -> None:
        check_built("gangway_blocking_plugin")
        # Beside the plugin, where a confined compiler may read.
        self._kept = tempfile.TemporaryDirectory(dir=BLOCKING_PLUGIN.parent)
        self._folder = pathlib.Path(self._kept.name)
        cluster.environment["GANGWAY_TEST_BLOCK_DIR"] = self._kept.name
        cluster.compiles_for_itself()  # what it blocks must not have been compiled before

    @contextlib.contextmanager
    def blocked(self, pid: int, what: str = "") -> Iterator[None]:
        """While the `with` block runs, a call of Execute in process `pid` does not return; with ".load", the load of
        an executable.
        """
        fifo = self._folder / f"{pid}{what}"
        os.mkfifo(fifo)
        try:
            yield
        finally:
            writer = os.open(fifo, os.O_RDWR)  # releases a blocked reader, and never blocks itself
            fifo.unlink()
            os.close(writer)

    @contextlib.contextmanager
    def refused(self, pid: int, device: int) -> Iterator[None]:
        """While the `with` block runs, Execute fails in process `pid` on its local device `device`."""
        file = self._folder / f"{pid}.refuse"
        file.write_text(str(device))
        try:
            yield
        finally:
            file.unlink()

    @contextlib.contextmanager
    def refused_loads(self, pid: int) -> Iterator[None]:
        """While the `with` block runs, the load of an executable fails in process `pid`."""
        file = self._folder / f"{pid}.refuse_load"
        file.touch()
        try:
            yield
        finally:
            file.unlink()


def stop_process(pid: int) -> None:
    """Sends SIGSTOP and waits until it has taken effect: on a busy machine, threads keep running for a
    while after the signal.
    """
    os.kill(pid, signal.SIGSTOP)

    def stopped() -> bool:
        threads = pathlib.Path(f"/proc/{pid}/task").glob("*/stat")
        return all(thread.read_text().rpartition(")")[2].split()[0] == "T" for thread in threads)

    wait_for(f"process {pid} stopped", stopped, 10)


@contextlib.contextmanager
def stopped(*pids: int) -> Iterator[None]:
    """Continues each process that still exists at the end: a supervisor may have killed it."""
    try:
        for pid in pids:
            stop_process(pid)
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def in_a_fifo(pid: int) -> bool:
    """Whether a thread of the process waits for the other end of a FIFO, as those that a Blocker blocks."""
    for thread in pathlib.Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended
            if (thread / "wchan").read_text() in FIFO_WAITS:
                return True
    return False


def segments(workers: list[dict[str, Any]], names: str = "collectives|heap") -> dict[str, int]:
    """How many segments of shared memory each worker maps, by the worker's name and the segments'."""
    found: dict[str, int] = {}
    for worker in workers:
        with contextlib.suppress(OSError):  # it has ended
            maps = pathlib.Path(f"/proc/{worker['pid']}/maps").read_text()
            for _, name in set(re.findall(rf" (\d+) +/memfd:gangway-({names})", maps)):
                key = f"{name} in {worker['name']}"
                found[key] = found.get(key, 0) + 1
    return found


def the_cause(errors: list[str], worker: str, of: str = "gang") -> str:
    """Checks that all errors are one failure record of `worker`, with program and incarnation, and without the plugin's
    own words. A gang's record also has its number and device. Returns the first line of the cause, with its code.
    """
    # The front door says which function of the C API reports it.
    texts = {re.sub(r"^([A-Z_]+: )PJRT_\w+: ", r"\1", error) for error in errors}
    assert len(texts) == 1, texts
    (text,) = texts
    optional = "?" if of == "load" else ""  # it may fail before a gang is sent
    gang, device = (rf"(?:, {name} \d+){optional}" for name in ("gang", "device"))
    record = rf"\s\[program [^\]]+?{gang}, worker {worker}, incarnation \d+{device}\]"
    found = re.fullmatch(rf"([A-Z_]+: [^\n]+?)(\n.*)?{record}", text, re.DOTALL)
    assert found and not PLUGIN_TEXT.search(text), text
    return found[1]


class CutNetwork:
    """A proxy for a port of this host that can be cut silently in either direction ("there": to the
    port). Bytes sent into a cut are lost, and no connection closes, as when a host loses power or a
    cable is pulled.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.cut = {"there": False, "back": False}
        self._cut_pairs: set[int] = set()
        self._ended = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._ended = True
        self._thread.join(5)
        self._listener.close()

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ, None)
            while not self._ended:
                for key, _ in selector.select(timeout=0.1):
                    if key.data is None:
                        self._accept(selector)
                    else:
                        self._forward(selector, key.fileobj, *key.data)

    def _accept(self, selector: selectors.BaseSelector) -> None:
        near, _ = self._listener.accept()
        try:
            far = socket.create_connection(("127.0.0.1", self._target), 5)
        except OSError:
            near.close()
            return
        selector.register(near, selectors.EVENT_READ, ("there", far, {}))
        selector.register(far, selectors.EVENT_READ, ("back", near, {}))

    def _forward(
        self,
        selector: selectors.BaseSelector,
        source: Any,
        way: str,
        to: Any,
        lost: dict[str, bool],
    ) -> None:
        try:
            data = source.recv(1 << 16)
        except OSError:
            data = b""
        if data:
            if self.cut[way] or lost:
                lost["yes"] = True  # a stream with a gap forwards nothing more
                return
            with contextlib.suppress(OSError):
                to.sendall(data)
            return
        if self.cut[way]:  # the cut also hides the close
            with contextlib.suppress(KeyError, ValueError):
                selector.unregister(source)
            return
        for end in (source, to):
            with contextlib.suppress(KeyError, ValueError):
                selector.unregister(end)
            end.close()


class Gate:
    """Worker `index` starts only while the gate, shut at first, is open; before that its process hangs, as
    if its device runtime did not start.
    """

    def __init__(self, cluster: Cluster, folder: pathlib.Path, index: int) -> None:
        self._shut = folder / "shut"  # a FIFO: a reader waits for a writer
        self._held = folder / "held"
        self.shut()
        script = folder / "role.sh"
        script.write_text(
            "#!/bin/sh\n"
            'case "$*" in\n'
            f'"worker "*" --index {index} "*)\n'
            f"  touch '{self._held}'\n"
            f"  if [ -p '{self._shut}' ]; then read -r _ < '{self._shut}'; fi ;;\n"
            "esac\n"
            f"exec '{GANGWAY}' \"$@\"\n"
        )
        script.chmod(0o700)
        cluster.environment["GANGWAY_ROLE_BINARY"] = str(script)

    def open(self) -> None:
        writer = os.open(self._shut, os.O_RDWR)  # releases a waiting reader
        self._shut.unlink()
        os.close(writer)

    def shut(self) -> None:
        self._held.unlink(missing_ok=True)
        os.mkfifo(self._shut)

    def wait_held(self) -> None:
        wait_for("the worker's process at the gate", self._held.exists, 20)


def start_jax(cluster: Cluster) -> subprocess.Popen[str]:
    code = "import gangway; gangway.connect(); import jax; print(jax.numpy.arange(4).sum())"
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env=client_environment(cluster.port),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def elapsed(since: float) -> float:
    return time.monotonic() - since


__all__ = [
    *("BLOCKING_PLUGIN", "Blocker", "Console", "CutNetwork", "Gate", "elapsed", "start_jax"),
    "wait_for",
]
