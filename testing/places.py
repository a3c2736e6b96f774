"""Clusters that options alone declare: no file, and workers that know their index and the controller's address."""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from harness import GANGWAY, NEW_PYTHON, PATIENCE, client_environment, wait_for
from namespaces import Network

Completed = subprocess.CompletedProcess[str]


class Places:
    """A controller and its workers, each in its own process, whose ports the system chooses."""

    def __init__(self, folder: pathlib.Path, tls: pathlib.Path | None = None) -> None:
        self.folder = folder
        self.tls = tls
        self.state = folder / "state"
        self.address_file = folder / "address"
        self.environment = {
            **client_environment(0),
            "GANGWAY_STATE_DIR": str(self.state),
        }
        self.environment.pop("GANGWAY_PORT", None)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def certificates(self, *flags: str) -> Completed:
        assert self.tls
        return self.run("certs", str(self.tls), "--any-host", "--days", "1", *flags)

    def command(self, name: str, arguments: Sequence[str]) -> list[str]:
        """The command line of the process that the tests call so."""
        return [str(GANGWAY), *arguments]

    def run(
        self,
        *arguments: str,
        timeout_s: float = 60,
        on: str = "tool",
        environment: Mapping[str, str] | None = None,
    ) -> Completed:
        return subprocess.run(
            self.command(on, arguments),
            env={**self.environment, **(environment or {})},
            capture_output=True,
            text=True,
            timeout=timeout_s * PATIENCE,
        )

    def start(self, name: str, command: Sequence[str]) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                self.command(name, command),
                env=self.environment,
                stdout=log,
                stderr=log,
            )

    def tls_flags(self) -> list[str]:
        return ["--tls", str(self.tls)] if self.tls else []

    def start_controller(self, *flags: str, listen: str = "127.0.0.1:0") -> None:
        """Returns when it listens; its address is then in `address`."""
        command = ["controller", "--listen", listen, "--port", "0", *self.tls_flags()]
        self.start("controller", [*command, "--address-file", str(self.address_file), *flags])
        wait_for(
            "the controller's address",
            lambda: self.address_file.exists() or self.processes["controller"].poll() is not None,
            20,
        )
        assert self.address_file.exists(), self.log("controller")
        self.address = self.address_file.read_text().strip()
        found = re.search(r"JAX at 127\.0\.0\.1:(\d+)", self.log("controller"))
        assert found, self.log("controller")
        self.front_door = int(found.group(1))

    def worker_command(self, index: int, *flags: str) -> list[str]:
        """Without TLS, the worker finds the cluster in the state folder by its port."""
        where = (
            ["--connect", self.address, *self.tls_flags()]
            if self.tls
            else ["--port", str(self.front_door)]
        )
        return ["worker", "--index", str(index), *where, *flags]

    def start_worker(self, index: int, *flags: str) -> None:
        self.start(f"worker{index}", self.worker_command(index, *flags))

    def ready(self, wait_s: int = 40) -> Completed:
        """`gangway status` on the controller's host, which waits until all workers are up."""
        port = ("--port", str(self.front_door))
        return self.run("status", "--wait", str(wait_s * PATIENCE), *port, timeout_s=wait_s + 20)

    def status(self) -> dict[str, Any]:
        result = self.run("status", "--json", "--port", str(self.front_door))
        assert result.returncode == 0, result.stderr
        status: dict[str, Any] = json.loads(result.stdout)
        return status

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def ended(self, name: str, within_s: float = 20) -> int:
        """The exit status of a process that ends by itself or was told to."""
        return self.processes.pop(name).wait(within_s * PATIENCE)

    def end(self, name: str) -> int:
        self.processes[name].terminate()
        return self.ended(name)

    def stop(self) -> None:
        try:
            for name in sorted(self.processes, reverse=True):  # the controller last
                self.end(name)
        finally:
            for process in self.processes.values():
                process.kill()
                process.wait()


class PlacesOnHosts(Places):
    """The same on hosts of their own: the controller on the first, with the tools, and worker N on the host N + 1."""

    def __init__(self, folder: pathlib.Path, network: Network) -> None:
        super().__init__(folder, folder / "tls")
        self.environment |= NEW_PYTHON  # a forked one would be on this machine's network
        self.network = network
        self.moved: dict[str, str] = {}  # processes on other hosts
        assert self.certificates().returncode == 0

    def host_of(self, name: str) -> str:
        hosts = list(self.network.hosts)
        number = int(name.removeprefix("worker")) + 1 if name.startswith("worker") else 0
        return self.moved.get(name, hosts[number])

    def command(self, name: str, arguments: Sequence[str]) -> list[str]:
        host = self.network.hosts.get(name) or self.network[self.host_of(name)]
        return host.entering(*super().command(name, arguments))
