"""Clusters that a test starts process by process from a cluster.toml, on loopback addresses that stand
for hosts.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import shutil
import signal
import subprocess
from collections.abc import Sequence
from typing import Any

from faultlib import CutNetwork
from harness import GANGWAY, PATIENCE, STATE_DIRS, client_environment, free_port, wait_for

SCRIPT = (
    "import jax, numpy as np\n"
    "xs = [jax.device_put(np.arange(1 << 18, dtype='float32'), d) for d in jax.devices()]\n"
    "print(len(xs), [float(jax.jit(lambda x: (x + 1).sum())(x)) for x in xs])\n"
)
SUM = float(sum(range(1, (1 << 18) + 1)))


@dataclasses.dataclass
class Client:
    port: int


class Hosts:
    """A controller on 127.0.0.1 and workers on 127.0.0.2, .3, ..., each in its own process; with
    `schedulers`, also a scheduler per island. `islands` holds the device count of each worker, by island. `settings`
    are lines of the file for the controller, `everywhere` for all.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        *,
        tls: bool,
        islands: Sequence[Sequence[int]] = ((2, 1),),
        schedulers: bool = False,
        settings: str = "",
        everywhere: str = "",
    ) -> None:
        self.folder = folder
        self.islands = islands
        self.addresses = [f"127.0.0.{2 + i}" for i in range(sum(map(len, islands)))]
        self.control, self.front_door = free_port(), free_port()
        self.scheduler_ports = [free_port() for _ in islands] if schedulers else []
        self.environment = {
            **client_environment(self.front_door),
            "GANGWAY_STATE_DIR": str(folder / "state"),
        }
        self.flags: list[str] = []
        if tls:
            self.flags = ["--tls", str(folder / "tls")]
            made = self.run("certs", str(folder / "tls"), "--hosts", ",".join(self.addresses))
            assert made.returncode == 0, made.stderr
        self.config = folder / "cluster.toml"
        self.config.write_text(
            f"{everywhere}[controller]\n"
            f"host = '127.0.0.1'\ncontrol_port = {self.control}\n"
            f"front_door_port = {self.front_door}\n{settings}" + self.declared()
        )
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def status(self) -> dict[str, Any]:
        result = self.run("status", "--json", "--port", str(self.front_door))
        assert result.returncode == 0, result.stderr
        status: dict[str, Any] = json.loads(result.stdout)
        return status

    def declared(self) -> str:
        addresses = iter(self.addresses)
        text = ""
        for number, island in enumerate(self.islands):
            workers = [
                f"{{ host = '{next(addresses)}'" + (f", devices = {n} }}" if n > 1 else " }")
                for n in island
            ]
            text += f"[[island]]\nworkers = [ {', '.join(workers)} ]\n"
            if self.scheduler_ports:
                port = self.scheduler_ports[number]
                text += f"scheduler = {{ host = '127.0.0.1', port = {port} }}\n"
        return text

    def run(self, *arguments: str, timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(GANGWAY), *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout_s * PATIENCE,
        )

    def start(self, name: str, *arguments: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [str(GANGWAY), *arguments, "--config", str(self.config), *self.flags_of(name)],
                env=self.environment,
                stdout=log,
                stderr=log,
            )

    def flags_of(self, name: str) -> list[str]:
        return self.flags

    def start_controller(self) -> None:
        self.start("controller", "controller")

    def wait_for_token(self) -> None:
        """Waits for the token file, which processes of this host read if there is no TLS."""
        wait_for("the token", (self.folder / "state" / str(self.front_door) / "token").exists, 20)

    def start_schedulers(self) -> None:
        for island in range(len(self.scheduler_ports)):
            self.start(f"scheduler{island}", "scheduler", "--island", str(island))

    def start_workers(self) -> None:
        places = [(i, j) for i, island in enumerate(self.islands) for j in range(len(island))]
        for number, (island, index) in enumerate(places):
            place = ("--island", str(island), "--index", str(index))
            self.start(f"worker{number}", "worker", *place)

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def wait_for(self, name: str, words: str, count: int = 1) -> None:
        wait_for(
            f"{words!r} {count} times in the log of {name}",
            lambda: self.log(name).count(words) >= count,
            40,
        )

    def script(self, *flags: str) -> subprocess.CompletedProcess[str]:
        path = self.folder / "script.py"
        path.write_text(SCRIPT)
        return self.run("run", *flags, str(path))

    def client(self) -> Client:
        """The port to which a client process of this host connects."""
        STATE_DIRS[self.front_door] = str(self.folder / "state")
        return Client(self.front_door)

    def connect(self, tls: pathlib.Path | str = "") -> subprocess.CompletedProcess[str]:
        return self.script(*self.connect_flags(tls))

    def connect_flags(self, tls: pathlib.Path | str = "") -> list[str]:
        """Flags of `gangway run` that start a front door beside the script."""
        return [
            *["--connect", f"127.0.0.1:{self.control}"],
            *["--tls", str(tls or self.folder / "tls")],
        ]

    def end(self, name: str) -> None:
        process = self.processes.pop(name)
        process.terminate()
        try:
            assert process.wait(timeout=20 * PATIENCE) == 0, self.log(name)
        finally:
            process.kill()

    def stop(self) -> None:
        try:
            for name in list(self.processes):
                self.end(name)
        finally:
            for process in self.processes.values():
                process.kill()


class HostsWithRoles(Hosts):
    """Each process has a certificate and tokens of its own, in the folder of its name in `tls`, which itself
    belongs to the operator.
    """

    def __init__(self, folder: pathlib.Path, settings: str = "") -> None:
        super().__init__(folder, tls=True, settings=settings)
        self.add("controller", "controller", "127.0.0.1")
        for number, address in enumerate(self.addresses):
            self.add(f"worker{number}", "worker", address)

    def add(self, name: str, role: str, host: str = "") -> pathlib.Path:
        tls = self.folder / "tls"
        hosts = ["--hosts", host] if host else []
        made = self.run("certs", str(tls), "--add", name, "--role", role, *hosts)
        assert made.returncode == 0, made.stderr
        return tls / name

    def reissue(self, folder: pathlib.Path, authority: pathlib.Path, *, days: int) -> None:
        """Replaces the certificate in `folder` by one of the same names and key, of the authority whose folder is
        named; negative `days`: it has expired.
        """
        request, certificate = folder / "request.pem", folder / "cert.pem"
        for command in (
            ["-x509toreq", "-copy_extensions", "copyall", "-in", str(certificate)]
            + ["-signkey", str(folder / "key.pem"), "-out", str(request)],
            ["-req", "-copy_extensions", "copyall", "-in", str(request), "-days", str(days)]
            + ["-CA", str(authority / "ca.pem"), "-CAkey", str(authority / "ca.key")]
            + ["-out", str(certificate)],
        ):
            subprocess.run(["openssl", "x509", *command], check=True, capture_output=True)
        request.unlink()
        certificate.chmod(0o600)

    def revoke(self, name: str) -> None:
        """Revokes the certificate, and brings the list to the controller."""
        tls = self.folder / "tls"
        made = self.run("certs", str(tls), "--revoke", name)
        assert made.returncode == 0, made.stderr
        shutil.copy(tls / "revoked", tls / "controller" / "revoked")

    def flags_of(self, name: str) -> list[str]:
        return ["--tls", str(self.folder / "tls" / name)]


class ByHand(Hosts):
    """A controller and two workers without a supervisor; the path of worker 0 to it can be cut."""

    def __init__(self, folder: pathlib.Path) -> None:
        super().__init__(folder, tls=False)
        self.port = self.front_door
        STATE_DIRS[self.port] = str(folder / "state")
        self.network = CutNetwork(self.control)
        self.far_config = folder / "far.toml"
        self.far_config.write_text(
            self.config.read_text().replace(str(self.control), str(self.network.port))
        )

    def start_worker(self, name: str, index: int, *flags: str, far: bool = False) -> int:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [
                    *(str(GANGWAY), "worker", "--island", "0", "--index", str(index)),
                    *("--config", str(self.far_config if far else self.config), *flags),
                ],
                env=self.environment,
                stdout=log,
                stderr=log,
            )
        return self.processes[name].pid

    def start(self, *_: str) -> ByHand:  # type: ignore[override]
        super().start("controller", "controller")
        self.wait_for("controller", "the compiler is up")
        return self

    def workers(self) -> list[dict[str, Any]]:
        result = self.run("status", "--json", "--port", str(self.port))
        assert result.returncode == 0, result.stdout + result.stderr
        workers: list[dict[str, Any]] = json.loads(result.stdout)["islands"][0]["workers"]
        return workers

    def wait_until(self, index: int, state: str, timeout_s: float) -> dict[str, Any]:
        found: dict[str, Any] = wait_for(
            f"worker {index} {state}",
            lambda: next(
                (w for w in self.workers()[index : index + 1] if w["state"] == state), None
            ),
            timeout_s,
        )
        return found

    def stop(self) -> None:
        for process in self.processes.values():
            process.send_signal(signal.SIGCONT)
        self.network.cut = {"there": False, "back": False}
        try:
            for name in sorted(self.processes):
                if self.processes[name].poll() is None:
                    self.end(name)
        finally:
            self.network.close()
            for process in self.processes.values():
                process.kill()
                process.wait(5 * PATIENCE)
