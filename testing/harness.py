"""Clusters of real processes, for the end-to-end tests and the benchmarks."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from forking import PYTHON_OF_SERVER, SERVER, Fork
from leftovers import MARKER

ROOT = pathlib.Path(__file__).resolve().parent.parent
GANGWAY = pathlib.Path(os.environ.get("GANGWAY_BIN", ROOT / "bin" / "gangway"))
UP_TIMEOUT_S = 60
DOWN_TIMEOUT_S = 20
CENSUS_TIMEOUT_S = 30
ENDED_S = 1  # until a process has closed its end of a TCP connection that the other end has closed
TCP_LASTS = ("state 01", "state 0A")  # connected, listening
# Counters of `gangway status --json`: what the head holds for clients, which is nothing once they are gone.
HEAD_HOLDS = (
    *("head_host_buffers_bytes", "head_programs_bytes", "head_pieces_bytes", "head_executables"),
    *("head_executables_bytes", "storages", "nodes", "compiles", "compiles_bytes"),
)
HEAD_MIB = "MiB of malloc in the head"
HEAD_MIB_SLACK = 40  # malloc counts as live what threads cache, 32 MiB at most
POLLS_MIN = 40  # of a condition, within its limit
FREE_PORTS = 12_000  # that free_port chooses from
# Names of gRPC's pooled threads, cut to 15 characters as in the kernel. The pools vary by a thread or two even in
# idle processes, and grow when their threads are scheduled late. Others grow and never shrink: its two executors to
# twice the cores each (grpc_executor_set_threading in gRPC's executor.cc), its timers by a thread whenever one is due
# while all others run (run_some_timers in timer_manager.cc).
GRPC_GROWING = {"default-executo", "resolver-execut", "grpc_global_tim"}
GRPC_GROWING_MAX = 8 * (os.cpu_count() or 1)
GRPC_POOLS = {"event_engine", "grpcpp_sync_ser", "timer_manager"}
GRPC_POOLS_SLACK = 3
# Multiplies the limit of each wait in parallel runs, where few cores make everything late. Tests that measure a
# deadline are marked `alone`, and run one at a time.
PATIENCE = 5 if "PYTEST_XDIST_WORKER" in os.environ else 1
NIGHTLY = bool(os.environ.get("GANGWAY_NIGHTLY"))  # the run that leaves nothing out
# Of tests whose outcome does not depend on how JAX reaches the cluster, by default through the plugin.
DOORS = ["pjrt", "ifrt"] if NIGHTLY else ["pjrt"]
# The Python of scripts that use JAX: it is forked from one that has imported JAX. Not for tests of a script's start.
PYTHON = sys.executable if NIGHTLY else str(ROOT / "testing" / "forked_python.py")
# Variables with which `gangway run` starts a Python all the same.
NEW_PYTHON = {"GANGWAY_PYTHON": ""}
STATE_DIRS: dict[int, str] = {}  # of the clusters made here, by port
_leftovers: list[subprocess.Popen[str]] = []
_fork_servers: list[subprocess.Popen[bytes]] = []
_leftovers_lock = threading.Lock()
_waiting: set[int] = set()  # threads in wait_for


def ends_with_this_process(folder: str = "") -> None:
    """When this process ends, even by SIGKILL, leftovers.py ends the processes started after this call
    and removes `folder`.
    """
    with _leftovers_lock:
        if not _leftovers:
            run = f"{os.getpid()}-{time.time_ns()}"
            _leftovers.append(
                subprocess.Popen(
                    [sys.executable, str(ROOT / "testing" / "leftovers.py"), run],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    text=True,
                )
            )
            os.environ[MARKER] = run
        to = _leftovers[0].stdin
        assert to
        to.write(folder + "\n")
        to.flush()


def free_port() -> int:
    """A port of this host that none listens on, and that the kernel gives to no connection: it is below those
    that it chooses from.
    """
    above = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.randrange(above - FREE_PORTS, above)
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port


def wait_for(what: str, condition: Callable[[], Any], timeout_s: float) -> Any:
    """The first true value of `condition`, polled every 20 ms; a timeout fails and names `what`. In parallel runs,
    polling takes at most a fifth of the time, and that of several threads together the time of one: most conditions
    start a process, `gangway status`. Each pause is at most a POLLS_MINth of the limit: a condition may itself wait.
    """
    deadline = time.monotonic() + timeout_s * PATIENCE
    _waiting.add(threading.get_ident())
    try:
        while True:
            began = time.monotonic()
            value = condition()
            if value:
                return value
            now = time.monotonic()
            if now > deadline:
                raise AssertionError(f"{what}: not within {timeout_s * PATIENCE:g} s")
            share_s = (PATIENCE - 1 + len(_waiting) - 1) * (now - began)
            time.sleep(max(0.02, min(timeout_s * PATIENCE / POLLS_MIN, share_s)))
    finally:
        _waiting.discard(threading.get_ident())


def client_environment(port: int, door: str = "ifrt") -> dict[str, str]:
    """The environment of an unmodified JAX client: the port leads it to the cluster, and the state folder
    holds the token.
    """
    ends_with_this_process()
    state = {"GANGWAY_STATE_DIR": STATE_DIRS[port]} if port in STATE_DIRS else {}
    return {
        **os.environ,
        **state,
        "GANGWAY_DOOR": door,
        "GANGWAY_PORT": str(port),
        "PYTHONPATH": f"{ROOT / 'python'}:{os.environ.get('PYTHONPATH', '')}",
        "PYTHONUNBUFFERED": "1",
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }


def start_fork_server() -> None:
    """Starts fork_server.py, unless this process or one that started it has one; it ends with this process."""
    if SERVER in os.environ:
        return
    folder = tempfile.mkdtemp(prefix="gangway-fork-")
    ends_with_this_process(folder)
    program = ROOT / "testing" / "fork_server.py"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(f"{folder}/socket")
        listener.listen(64)
        server = subprocess.Popen(
            [sys.executable, str(program), str(listener.fileno())],
            env={**client_environment(0), "OPENBLAS_NUM_THREADS": "1"},  # it must have one thread
            stdin=subprocess.PIPE,
            pass_fds=[listener.fileno()],
        )
    _fork_servers.append(server)
    os.environ |= {SERVER: f"{folder}/socket", PYTHON_OF_SERVER: sys.executable}


class Client:
    """A client process that runs `program`, a Python file or the text of one, with pipes as its stdin and stdout. It is
    forked from a process that has already imported JAX (forking.py).
    """

    def __init__(
        self,
        program: pathlib.Path | str,
        port: int,
        door: str = "ifrt",
        environment: Mapping[str, str] | None = None,
        stderr: int = 2,
    ) -> None:
        start_fork_server()
        (stdin, to_stdin), (from_stdout, stdout) = os.pipe(), os.pipe()
        command = [str(program)] if isinstance(program, pathlib.Path) else ["-c", program]
        variables = {**client_environment(port, door), **(environment or {})}
        self.stdin, self.stdout = os.fdopen(to_stdin, "w"), os.fdopen(from_stdout)
        try:
            self._fork = Fork(command, variables, (stdin, stdout, stderr))
        except BaseException:
            self.stdin.close()
            self.stdout.close()
            raise
        finally:
            for descriptor in (stdin, stdout):
                os.close(descriptor)
        self.pid = self._fork.pid

    @property
    def returncode(self) -> int | None:
        return self._fork.returncode

    def kill(self) -> None:
        with contextlib.suppress(OSError):  # it has just ended
            self._fork.send_signal(signal.SIGKILL)

    def wait(self, timeout_s: float) -> int:
        """Waits until the process has ended; returns its exit status, as Popen does."""
        status = self._fork.wait(timeout_s)
        assert status is not None, f"client {self.pid} did not end within {timeout_s:g} s"
        return status

    def close(self) -> None:
        """Ends the process."""
        self.kill()
        self.wait(5 * PATIENCE)
        self.stdout.close()
        with contextlib.suppress(BrokenPipeError):
            self.stdin.close()


def run_client(
    text: str,
    port: int,
    door: str = "ifrt",
    environment: Mapping[str, str] | None = None,
    timeout_s: float = 60,
) -> subprocess.CompletedProcess[str]:
    """Runs the text of a script to its end, as a `Client`: JAX has been imported, so its variables have no effect."""
    assert not any(name.startswith(("JAX_", "XLA_")) for name in environment or ()), environment
    with tempfile.TemporaryFile() as err:
        client = Client(text, port, door, environment, err.fileno())
        client.stdin.close()
        late = threading.Timer(timeout_s * PATIENCE, client.kill)
        late.start()
        try:
            with client.stdout:
                output = client.stdout.read()
            returncode = client.wait(5 * PATIENCE)
        finally:
            late.cancel()
            client.close()
        err.seek(0)
        return subprocess.CompletedProcess(text, returncode, output, err.read().decode())


def output_of_client(text: str, port: int, door: str = "ifrt", timeout_s: float = 60) -> str:
    """What `run_client` prints to stdout; it must succeed."""
    done = run_client(text, port, door, timeout_s=timeout_s)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def latency_file() -> str:
    """What a process holds open while something is under way, and for a moment longer."""
    return os.environ.get("GANGWAY_LATENCY_REQUEST", "") or "/dev/cpu_dma_latency"


def lasting_descriptors(pid: int) -> set[int]:
    """The numbers of a process's descriptors, but for the one of its latency request, which comes and goes. Of a
    socket that has two, as a link to a TCP port has, which the port's limits watch, one is named.
    """
    found: dict[str, int] = {}
    for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it was closed since
            target = os.readlink(entry)
            if target != latency_file():
                found[target if target.startswith("socket:") else entry.name] = int(entry.name)
    return set(found.values())


def holds_latency_request(pid: int) -> bool:
    for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            if os.readlink(entry) == latency_file():
                return True
    return False


def sockets(pid: int) -> dict[str, str]:
    """What each socket of a process's host is, by what a descriptor of it leads to: a TCP socket with its local and its
    remote port, and its state. TCP sockets that are missing have no connection any more.
    """
    found = {}
    for line in pathlib.Path(f"/proc/{pid}/net/unix").read_text().splitlines()[1:]:
        *_, inode = line.split()[:7]
        found[f"socket:[{inode}]"] = f"unix {' '.join(line.split()[7:])}"
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            _, local, remote, state, *_, inode = line.split()[:10]
            ends = [str(int(end.split(":")[1], 16)) for end in (local, remote)]
            found[f"socket:[{inode}]"] = f"tcp {' to '.join(ends)}, state {state}"
    return found


def descriptors(pid: int) -> list[str]:
    """What each descriptor of a process is."""
    known = sockets(pid)
    found = []
    for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):  # it was closed since
            target = os.readlink(entry)
            found.append(f"{entry.name}: {known.get(target, target)}")
    return found


def is_ending(described: str) -> bool:
    """Whether a descriptor is the socket of a TCP connection that one end has closed, or both."""
    _, _, what = described.partition(": ")
    return what.startswith(("socket:", "tcp")) and not what.endswith(TCP_LASTS)


def settled_descriptors(pid: int) -> int:
    """How many lasting descriptors a process has, once it has closed those of connections whose peers have ended, or
    after ENDED_S: the connection of the `gangway status` that a census itself has run is one of them. A head looks for
    such connections every 50 ms (Strangers::kLookInterval).
    """
    late = time.monotonic() + ENDED_S * PATIENCE
    while any(map(is_ending, descriptors(pid))) and time.monotonic() < late:
        time.sleep(0.01)
    return len(lasting_descriptors(pid))


class Counted:
    """What of a cluster may leak, and a check that it has not. For clusters with `status`, `port` and `folder`."""

    port: int
    _warm = False

    def status(self) -> dict[str, Any]:
        raise NotImplementedError

    @property
    def head_folder(self) -> pathlib.Path:
        """The folder of the head, which has the file head.pid."""
        raise NotImplementedError

    def logs(self, bytes_max: int = 6000) -> str:
        """The ends of the logs of its processes, where they are kept."""
        return ""

    def census(self) -> dict[str, int]:
        """Counts of everything that may leak, by name. A process is named by its role, so that a
        restarted process is compared with its predecessor.
        """
        status = self.status()
        workers = [worker for island in status["islands"] for worker in island["workers"]]
        schedulers = status["schedulers"]
        counts = {
            "sessions": len(status["sessions"]),
            "arrays": status["arrays"],
            "bytes": status["bytes"],
            "bytes on devices": sum(d["bytes_in_use"] for w in workers for d in w["devices"]),
            "launches on devices": sum(d["launches"] for w in workers for d in w["devices"]),
            "absent roles": sum(
                role["state"] != "up" for role in [status["compiler"], *schedulers, *workers]
            ),
        }
        counters = status["counters"]
        counts |= {name: counters[name] for name in HEAD_HOLDS}
        counts[HEAD_MIB] = counters["head_live_bytes"] >> 20
        for name, pid in self.pids(status).items():
            with contextlib.suppress(OSError):  # it has ended: see "absent roles"
                counts[f"descriptors of {name}"] = settled_descriptors(pid)
                threads = [
                    path.read_text() for path in pathlib.Path(f"/proc/{pid}/task").glob("*/comm")
                ]
                pooled = sum(thread.strip() in GRPC_POOLS for thread in threads)
                growing = sum(thread.strip() in GRPC_GROWING for thread in threads)
                counts[f"threads of {name}"] = len(threads) - pooled - growing
                counts[f"threads of gRPC in {name}"] = pooled
                counts[f"growing threads of gRPC in {name}"] = growing
        if "descriptors of head" in counts:  # spare compilers come and go, with their links
            counts["descriptors of head"] -= max(0, status["counters"]["compilers"] - 1)
        return counts

    def pids(self, status: dict[str, Any]) -> dict[str, int]:
        """Of the processes that this status names, and of the head."""
        pids = {each["name"]: each["pid"] for i in status["islands"] for each in i["workers"]}
        pids |= {f"scheduler {each['island']}": each["pid"] for each in status["schedulers"]}
        return pids | {"compiler": status["compiler"]["pid"], "head": self.head_pid}

    @property
    def head_pid(self) -> int:
        return int((self.head_folder / "head.pid").read_text())

    @contextlib.contextmanager
    def left_as_found(
        self, first: Callable[[], None] | None = None, within_s: float = CENSUS_TIMEOUT_S
    ) -> Iterator[None]:
        """Fails unless, after the block, arrays, bytes, sessions, threads and descriptors return to their
        counts before it. `first` runs before the first count and creates what a first client leaves
        for good; by default warm_up, once per cluster.
        """
        if first:
            first()
        elif not self._warm:
            warm_up(self)
            self._warm = True
        before = self.census()
        yield
        more: dict[str, str] = {}

        def returned() -> bool:
            more.clear()
            for name, count in self.census().items():
                limit = before.get(name, 0)
                if name.startswith("threads of gRPC"):
                    limit += GRPC_POOLS_SLACK
                if name == HEAD_MIB:
                    limit += HEAD_MIB_SLACK
                if name.startswith("growing threads of gRPC"):
                    limit = max(limit, GRPC_GROWING_MAX)
                if count > limit:
                    more[name] = f"{count}, were {before.get(name, 0)}"
            return not more

        try:
            wait_for("counts as before", returned, within_s)
        except AssertionError as error:
            pids = self.pids(self.status()).items()
            opened = {n: descriptors(pid) for n, pid in pids if f"descriptors of {n}" in more}
            raise AssertionError(f"{error}: {more}\n{opened}\n{self.logs()}") from None


class Cluster(Counted):
    """A detached cluster, as `gangway up` starts it, with a state folder and a port of its own."""

    threads = ""  # of every cluster's pool; empty: `gangway up` chooses

    def __init__(
        self,
        islands: int = 1,
        workers: int = 1,
        devices: int = 8,
        *flags: str,
        folder: str = "gangway-test-",
    ) -> None:
        """`folder`: the prefix of the state folder's name."""
        assert GANGWAY.exists(), f"{GANGWAY} is missing: build it first (make)"
        self.port = free_port()
        self._state = tempfile.TemporaryDirectory(prefix=folder)
        STATE_DIRS[self.port] = self._state.name
        ends_with_this_process(self._state.name)
        self.environment = {**os.environ, "GANGWAY_STATE_DIR": self._state.name}
        counts = ["--islands", islands, "--workers", workers, "--devices", devices]
        if self.threads and "--threads" not in flags:
            counts += ["--threads", self.threads]
        self._up = ["up", *map(str, counts), "--port", str(self.port), "--detach", *flags]

    @property
    def state_dir(self) -> str:
        return self._state.name

    @property
    def binary(self) -> pathlib.Path:
        return GANGWAY

    def command(
        self, *arguments: str, timeout_s: float = 30, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Runs `gangway ARGUMENTS` and returns its result, even if it fails."""
        return subprocess.run(
            [str(GANGWAY), *arguments],
            env={**client_environment(self.port), **self.environment, **options.pop("env", {})},
            capture_output=True,
            text=True,
            timeout=timeout_s * PATIENCE,
            **options,
        )

    def compiles_for_itself(self) -> None:
        """Before its start: it does not load what other clusters of the run have compiled."""
        self.environment["GANGWAY_CACHE_DIR"] = ""

    def up(self) -> subprocess.CompletedProcess[str]:
        return self.command(*self._up, timeout_s=UP_TIMEOUT_S)

    def start(self) -> Cluster:
        result = self.up()
        if result.returncode:
            self.stop()
            raise AssertionError(
                f"gangway up failed:\n{result.stdout}{result.stderr}\n{self.logs()}"
            )
        return self

    @contextlib.contextmanager
    def starting(self) -> Iterator[None]:
        """Runs the block while `gangway up` still waits for workers; the control address exists."""
        process = subprocess.Popen(
            [str(GANGWAY), *self._up],
            env={**client_environment(self.port), **self.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            wait_for("the head listening", (self.folder / "control").exists, 20)
            yield
        finally:
            process.kill()  # it only reports; the cluster runs in other processes
            process.communicate(timeout=10 * PATIENCE)

    def wait_for_words(self, words: str, timeout_s: float = 20) -> None:
        """Waits until the cluster's logs contain `words`."""
        wait_for(f"{words!r} in the logs", lambda: words in self.logs(1 << 20), timeout_s)

    def stop(self) -> None:
        """Takes the cluster down; fails if one of its processes survives."""
        result = self.command("down", "--port", str(self.port), timeout_s=DOWN_TIMEOUT_S)
        left = self.processes()
        try:
            wait_for("every process of the cluster gone", lambda: not self.processes(), 5)
        except AssertionError:
            for pid in self.processes():
                os.kill(pid, signal.SIGKILL)
            raise AssertionError(
                f"gangway down ({result.returncode}) left processes {left}:\n"
                f"{result.stdout}{result.stderr}\n{self.logs()}"
            ) from None

    def processes(self) -> list[int]:
        """Every live process whose environment names this cluster's state folder, except Python processes."""
        marker = f"GANGWAY_STATE_DIR={self._state.name}".encode()
        found = []
        for path in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                state = (path / "stat").read_text().rpartition(")")[2].split()[0]
                words = (path / "cmdline").read_bytes().split(b"\0")
                mine = marker in (path / "environ").read_bytes().split(b"\0")
                if state != "Z" and mine and b"python" not in words[0]:
                    found.append(int(path.name))
            except OSError:  # it has ended, or belongs to another user
                continue
        return found

    def logs(self, bytes_max: int = 6000) -> str:
        """The ends of the log files in the state folder."""
        return "\n".join(
            f"--- {path.name}\n{path.read_text(errors='replace')[-bytes_max:]}"
            for path in sorted(pathlib.Path(self._state.name).rglob("*.log"))
        )

    def status(self) -> dict[str, Any]:
        result = self.command("status", "--json", "--port", str(self.port), timeout_s=10)
        assert result.returncode == 0, result.stdout + result.stderr
        status: dict[str, Any] = json.loads(result.stdout)
        return status

    def workers(self) -> list[dict[str, Any]]:
        return [worker for island in self.status()["islands"] for worker in island["workers"]]

    @property
    def control(self) -> str:
        """The address of the control socket, where native clients connect."""
        return (self.folder / "control").read_text().strip()

    @property
    def token(self) -> str:
        return (self.folder / "token").read_text().strip()

    @property
    def folder(self) -> pathlib.Path:
        """The cluster's own folder in the state folder."""
        return pathlib.Path(self._state.name) / str(self.port)

    @property
    def head_folder(self) -> pathlib.Path:
        return self.folder


def warm_up(cluster: Counted) -> None:
    """Runs one client that uses every device, and waits for the end of its session."""
    client = Client(ROOT / "testing" / "warm_up.py", cluster.port)
    try:
        assert client.wait(50 * PATIENCE) == 0, (
            "the client that warms the cluster up failed: see stderr"
        )
    finally:
        client.close()
    wait_for("the first client gone", lambda: not cluster.status()["sessions"], 10)


def why(cluster: Cluster) -> list[dict[str, Any]]:
    result = cluster.command("why", "--json", "--port", str(cluster.port), timeout_s=10)
    assert result.returncode == 0, result.stdout + result.stderr
    waits: list[dict[str, Any]] = json.loads(result.stdout)["waits"]
    return waits
