"""A cluster of nine processes with a proxy on every link, and the load that runs on it while a test breaks something:
sessions of random programs, and a JAX script. Each load notes how long every question waited for its answer.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import subprocess
import threading
import time
from typing import Any

from faultlib import Console
from harness import PATIENCE, STATE_DIRS, Counted, free_port, wait_for
from hosts import Hosts
from link_proxy import LinkProxy, write_state
from native_programs import native

WORKER_WAIT_S = 4  # the cluster's worker_wait
CLIENT_SILENCE_S = 8  # its client_silence
JAX = "jax to the front door"  # the name of its link

STEP = """
devices = jax.devices()
f = jax.jit(lambda v: v ^ 1)
def step(seed):
    draw = np.random.default_rng(seed)
    a, b = (devices[i] for i in draw.integers(0, len(devices), 2))
    raw = draw.integers(0, 256, int(draw.integers(1, 1 << 21)), dtype="uint8")
    got = np.asarray(jax.device_put(f(jax.device_put(raw, a)), b))
    assert (got == raw ^ 1).all(), "wrong bytes"
"""


class LinkedHosts(Hosts, Counted):
    """Two islands of two workers of two devices; island 1 has a separate scheduler. A proxy is on every link."""

    def __init__(self, folder: pathlib.Path, settings: str = "") -> None:
        """`settings`: more lines for the controller in the cluster's file."""
        self.data_ports = [free_port() for _ in range(4)]
        settings += f"worker_wait = {WORKER_WAIT_S}\nclient_silence = {CLIENT_SILENCE_S}\n"
        super().__init__(
            folder, tls=False, islands=((2, 2), (2, 2)), schedulers=True, settings=settings
        )
        self.proxy = LinkProxy()
        self.port = self.proxy.add(JAX, ("127.0.0.1", self.front_door))
        self.client_environment = self.proxy.environment(
            "client", {"the controller": ("127.0.0.1", self.control), **self.data()}
        )

    def declared(self) -> str:
        """Island 0 is scheduled by the controller; each data port is known beforehand."""
        text = ""
        for island in range(2):
            workers = [
                f"{{ host = '{self.addresses[i]}', devices = 2, data_port = {self.data_ports[i]} }}"
                for i in (2 * island, 2 * island + 1)
            ]
            text += f"[[island]]\nworkers = [ {', '.join(workers)} ]\n"
        return text + f"scheduler = {{ host = '127.0.0.1', port = {self.scheduler_ports[1]} }}\n"

    def data(self) -> dict[str, tuple[str, int]]:
        return {f"worker{i}": (self.addresses[i], port) for i, port in enumerate(self.data_ports)}

    def targets_of(self, name: str) -> dict[str, tuple[str, int]]:
        control = {"the controller": ("127.0.0.1", self.control)}
        if name == "scheduler1":
            return control
        if name == "controller":  # the compiler connects to the controller, the head to the workers
            return control | self.data()
        others = {peer: at for peer, at in self.data().items() if peer != name}
        if name in ("worker0", "worker1"):
            return control | others
        return {"the scheduler": ("127.0.0.1", self.scheduler_ports[1])} | others

    def start(self, name: str, *arguments: str) -> None:
        common = self.environment
        self.environment = common | self.proxy.environment(name, self.targets_of(name))
        try:
            super().start(name, *arguments)
        finally:
            self.environment = common

    def start_all(self) -> None:
        self.start_controller()
        self.wait_for_token()
        self.start("scheduler1", "scheduler", "--island", "1")
        for number in range(4):
            place = ("--island", str(number // 2), "--index", str(number % 2))
            self.start(f"worker{number}", "worker", *place, "--shared-memory", "0")
        self.wait_for("controller", "ready: ")
        state = self.folder / "clients"
        write_state(state, self.port, (self.head_folder / "token").read_text())
        STATE_DIRS[self.port] = str(state)

    @property
    def head_folder(self) -> pathlib.Path:
        return self.folder / "state" / str(self.front_door)

    def workers(self) -> list[dict[str, Any]]:
        return [worker for island in self.status()["islands"] for worker in island["workers"]]

    def all_up(self) -> bool:
        status = self.status()
        workers = [worker for island in status["islands"] for worker in island["workers"]]
        roles = [status["compiler"], *status["schedulers"], *workers]
        return all(role["state"] == "up" for role in roles)

    def stop(self) -> None:
        try:
            super().stop()
        finally:
            self.proxy.close()


class NativeLoad:
    """Sessions of random programs, one after the other in each of two threads."""

    threads = (0, 1)

    def __init__(self, hosts: LinkedHosts, seed: int) -> None:
        self.rounds: list[dict[str, Any]] = []
        self._process = subprocess.Popen(
            [
                str(native("random_programs_e2e_test")),
                "--gtest_filter=RandomProgramsE2eTest.SessionsUntilTheEndOfStdin_TM_1",
            ],
            env={
                **os.environ,
                **hosts.client_environment,
                "GANGWAY_TEST_CONTROL": f"127.0.0.1:{hosts.control}",
                "GANGWAY_TEST_FOLDER": str(hosts.head_folder),
                "GANGWAY_SEED": str(seed),
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.pid = self._process.pid
        self._other: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            if not line.startswith("{"):
                self._other.append(line)
                continue
            found = json.loads(line)
            found["ended"] = time.monotonic()
            found["began"] = found["ended"] - found["took_ms"] / 1000
            self.rounds.append(found)

    def alive(self) -> None:
        assert self._process.poll() is None, "".join(self._other)

    def slowest_s(self, since: float) -> float:
        """The longest that a question of a round waited that ended after `since`."""
        return max(
            (r.get("slowest_ms", 0) / 1000 for r in list(self.rounds) if r["ended"] > since),
            default=0,
        )

    def clean_since(self, since: float) -> bool:
        """Whether each thread has had a whole session without a failure that began after `since`."""
        self.alive()
        clean = {
            r["thread"] for r in list(self.rounds) if r["began"] > since and not r.get("error")
        }
        return clean == {*self.threads}

    def errors(self, since: float) -> set[str]:
        return {r["error"] for r in list(self.rounds) if r["ended"] > since and r.get("error")}

    def close(self) -> None:
        try:
            output = ""
            with contextlib.suppress(subprocess.TimeoutExpired, BrokenPipeError, ValueError):
                assert self._process.stdin
                self._process.stdin.close()
                self._process.wait(30 * PATIENCE)
            self._reader.join(5)
            output = "".join(self._other)
            assert self._process.returncode == 0, output
        finally:
            self._process.kill()
            self._process.wait(5 * PATIENCE)


class JaxLoad:
    """A JAX script that calls `step` of `program` with one seed after the other: by default, it uploads, calls, copies
    and fetches. It is started again if its session is lost.
    """

    def __init__(self, hosts: LinkedHosts, seed: int, program: str = STEP) -> None:
        self._hosts = hosts
        self._program = program
        self._seed = seed << 20
        self.rounds: list[tuple[float, float, str]] = []  # began, took, error
        self._ended = threading.Event()
        self._broken = ""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._ended.is_set():
                self._session()
        except Exception as error:
            self._broken = repr(error)

    def _session(self) -> None:
        began = time.monotonic()
        try:
            console = Console(self._hosts, 30)
        except AssertionError as error:  # the link to the front door is cut
            self.rounds.append((began, 0, str(error)))
            return
        with console:
            console.do(f"exec({self._program!r}, globals())", 60)
            while not self._ended.is_set():
                self._seed += 1
                began = time.monotonic()
                try:
                    said = console.ask(f"step({self._seed})", 40).get("error", "")
                except AssertionError as ended:  # jaxlib may abort a process that lost its session
                    said = f"UNAVAILABLE: {ended}"
                self.rounds.append((began, time.monotonic() - began, said))
                assert "wrong bytes" not in said
                if "UNAVAILABLE" in said:
                    return

    def alive(self) -> None:
        assert self._thread.is_alive(), self._broken

    def slowest_s(self, since: float) -> float:
        return max(
            (took for began, took, _ in list(self.rounds) if began + took > since), default=0
        )

    def clean_since(self, since: float) -> bool:
        self.alive()
        return any(began > since and not error for began, _, error in list(self.rounds))

    def errors(self, since: float) -> set[str]:
        return {error for began, took, error in list(self.rounds) if began + took > since and error}

    def close(self) -> None:
        self._ended.set()
        self._thread.join(60 * PATIENCE)
        assert not self._thread.is_alive() and not self._broken, self._broken


class Loads:
    def __init__(self, hosts: LinkedHosts, seed: int) -> None:
        self.native = NativeLoad(hosts, seed)
        self.jax = JaxLoad(hosts, seed)
        self.all = (self.native, self.jax)

    def __enter__(self) -> Loads:
        return self

    def __exit__(self, *_: object) -> None:
        for load in self.all:
            load.close()

    def wait_clean(self, since: float, within_s: float) -> None:
        def clean() -> bool:
            return all([load.clean_since(since) for load in self.all])

        try:
            wait_for("sessions without a failure", clean, within_s)
        except AssertionError as error:
            said = [load.errors(since) for load in self.all]
            raise AssertionError(f"{error}: {said}") from None


def use_all(hosts: LinkedHosts) -> None:
    """Opens what stays open: among it, the stream of each worker to each other one."""
    with Loads(hosts, 1) as loads, Console(hosts) as client:
        loads.wait_clean(time.monotonic(), 30)
        client.do("xs = [jax.device_put(np.ones(4), d) for d in jax.devices()[::2]]")
        client.do("ys = [jax.device_put(x, d) for x in xs for d in jax.devices()[::2]]")
        client.do("jax.block_until_ready(ys)")
