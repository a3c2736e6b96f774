"""A Ray cluster of several nodes on this machine, for tests: node1 is the head, and each node has an address of
loopback. It needs the venv of tools/versions/ray.txt.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
from collections.abc import Mapping
from typing import Any

from harness import PATIENCE, ROOT, ends_with_this_process, free_port, wait_for
from leftovers import MARKER, processes_with

SHARED = pathlib.Path("/dev/shm")
STORE_BYTES = 80 << 20  # Ray's least, nearly
FOLDER_PREFIX = "gangway-ray-"  # of what a cluster inside Ray keeps on a node


def ray_python() -> str:
    made = subprocess.run(
        [str(ROOT / "tools" / "venv.sh"), "ray"], capture_output=True, text=True, timeout=900
    )
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()


class RayNodes:
    """`folder` has a short path, as Ray's sockets are below it."""

    def __init__(self, python: str, folder: pathlib.Path) -> None:
        ends_with_this_process()
        self.python = python
        self.folder = folder
        self.address = ""
        self.dashboard_port = free_port()
        self._before = set(SHARED.glob(f"{FOLDER_PREFIX}*"))  # of others on this machine
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("GANGWAY_", "RAY_")) or name == MARKER
        }
        self.environment = {
            **inherited,
            "HOME": str(folder),  # where Ray may write a token
            "PYTHONPATH": str(ROOT / "python"),
            "PYTHONUNBUFFERED": "1",
            "RAY_USAGE_STATS_ENABLED": "0",
            "TF_CPP_MIN_LOG_LEVEL": "2",
            "TMPDIR": str(folder),
        }
        with (folder / "nodes.log").open("ab") as log:
            self._server = subprocess.Popen(
                [python, str(ROOT / "testing" / "ray_nodes_server.py")],
                env=self.environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def add(
        self,
        name: str,
        *,
        cpus: float = 2,
        gpus: int = 0,
        environment: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        """`name` is node and a number, which becomes that of its address."""
        arguments = {
            "num_cpus": cpus,
            "num_gpus": gpus,
            "node_ip_address": self.address_of(name),
            "object_store_memory": STORE_BYTES,
            "env_vars": dict(environment or {}),
            **more,
        }
        if not self.address:
            arguments |= {
                "temp_dir": str(self.folder / "ray"),
                "include_dashboard": True,  # it takes jobs
                "dashboard_host": self.address_of(name),
                "dashboard_port": self.dashboard_port,
            }
        self._ask({"do": "add", "name": name, "arguments": arguments})

    def address_of(self, name: str) -> str:
        return f"127.0.0.1{name.removeprefix('node')}"  # Ray takes 127.0.0.1 for another one

    def kill(self, name: str) -> None:
        """Its raylet, its actors and tasks, by SIGKILL."""
        self._ask({"do": "kill", "name": name})

    def _ask(self, wanted: dict[str, Any]) -> None:
        assert self._server.stdin and self._server.stdout
        print(json.dumps(wanted), file=self._server.stdin, flush=True)
        answer = json.loads(self._server.stdout.readline() or '{"error": "the server has ended"}')
        assert "error" not in answer, answer["error"]
        self.address = answer["address"]

    def start(self, script: str, *arguments: str, **environment: str) -> Driver:
        return Driver(self, [self.python, "-c", script, *arguments], environment)

    def command(self, *arguments: str, **environment: str) -> Driver:
        """`python -m gangway.ray`"""
        return Driver(self, [self.python, "-m", "gangway.ray", *arguments], environment)

    def submit(self, *command: str) -> Driver:
        """`ray job submit`, which waits for the job's end."""
        ray = str(pathlib.Path(self.python).with_name("ray"))
        at = f"http://{self.address_of('node1')}:{self.dashboard_port}"
        return Driver(self, [ray, "job", "submit", "--address", at, "--", *command], {})

    def left(self) -> list[str]:
        """What clusters inside Ray have left: folders, and processes."""
        shared = set(SHARED.glob(f"{FOLDER_PREFIX}*")) - self._before
        found = [str(path) for path in (*shared, *self.folder.glob(f"{FOLDER_PREFIX}*"))]
        for pid in processes_with(f"{MARKER}={os.environ[MARKER]}"):
            try:
                words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
            except OSError:
                continue  # it has ended
            if words[0].endswith("gangway") or "leave_s" in " ".join(words):
                found.append(f"{pid}: {' '.join(words)[:200]}")
        return found

    def stop(self) -> None:
        assert self._server.stdin and self._server.stdout
        self._server.stdin.close()
        try:
            self._server.wait(60 * PATIENCE)
        finally:
            self._server.kill()
            self._server.wait()
            self._server.stdout.close()


class Driver:
    """A script that uses the Ray cluster; its output goes to a file."""

    def __init__(self, nodes: RayNodes, command: list[str], environment: Mapping[str, str]) -> None:
        self._path = nodes.folder / f"driver-{len(list(nodes.folder.glob('driver-*')))}.log"
        with self._path.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                env={**nodes.environment, "RAY_ADDRESS": nodes.address, **environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=nodes.folder,
            )

    @property
    def output(self) -> str:
        return self._path.read_text(errors="replace")

    def wait_for_words(self, words: str, within_s: float = 90) -> None:
        def said() -> bool:
            return words in self.output or self.process.poll() is not None

        wait_for(f"{words!r} in the output", said, within_s)
        assert words in self.output, self.output

    def wait(self, within_s: float = 120) -> str:
        """Its output, once it has ended well."""
        status = self.ended(within_s)
        assert status == 0, f"status {status}: {self.output}"
        return self.output

    def ended(self, within_s: float = 120) -> int:
        try:
            return self.process.wait(within_s * PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"not ended within {within_s} s: {self.output}") from None
