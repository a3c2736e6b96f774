"""What the actors of `gangway.ray` run: one process of a cluster, under a guard (_guard.py).

Ray gets this module by value, so that an actor also starts on a node without this package, and can
say so. It therefore imports the standard library only. Methods of a `Place` run on several threads.
"""

from __future__ import annotations

import base64
import collections
import contextlib
import importlib
import importlib.util
import json
import os
import pathlib
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

LEAVE_S = 10  # that a process has to finish its work
START_LIMIT_S = 30  # of a Python, or of `gangway version`
PAUSE_S_MAX = 60  # before a process that has ended is started again
LASTED_S = 60  # after which the next pause is short again
END_GRACE_S = 5  # of a guard, beyond its command's time to finish
FOLDER_PREFIX = "gangway-ray-"  # of the folders that guards make
TAIL_LINES = 12  # of its output, that tell why a process has ended
READ_BYTES = 1 << 16
# Variables that would lead a process to another cluster.
OTHERS = ("GANGWAY_ADDRESS", "GANGWAY_PORT", "GANGWAY_STATE_DIR", "GANGWAY_TLS", "GANGWAY_TOKEN")


def find_gangway() -> str:
    """The path of the command: of the wheel or the repository that Python finds, or of PATH; empty
    if there is none.
    """
    found = importlib.util.find_spec("gangway")
    for folder in (found and found.submodule_search_locations) or ():
        package = pathlib.Path(folder).resolve()
        for path in (package / "_bin" / "gangway", package.parents[1] / "bin" / "gangway"):
            if os.access(path, os.X_OK):
                return str(path)
    return shutil.which("gangway") or ""


def version_of(command: str) -> str:
    """What `gangway version` says, or why it says nothing."""
    try:
        told = subprocess.run(
            [command, "version"], capture_output=True, text=True, timeout=START_LIMIT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"that does not start ({error})"
    return told.stdout.strip() or f"that fails ({told.stderr.strip()[-500:]})"


def what_is_wrong(command: str, version: str, wanted: str) -> str:
    """Why this host cannot run processes of a cluster of the version `wanted`; empty if it can."""
    where = f"the Python of Ray there is {sys.executable}"
    if not command:
        return (
            "has no package gangway, and no command gangway in PATH: install the wheel "
            f"gangway-runtime {wanted} on that node ({where}), or pass it in runtime_env"
        )
    if version != wanted:
        return (
            f"has gangway {version} ({command}), but this driver has {wanted}: install one version "
            f"on all nodes ({where})"
        )
    return ""


def say(text: str) -> None:
    """To Ray's log of this actor, and to the stderr of the script, whose stdout is its own."""
    print(text, file=sys.stderr, flush=True)


class Guarded:
    """A process under a guard, or a folder alone if there is no command. `guard` is the text of
    _guard.py, and `files` are the folder's. One thread reads; `end` may be called from any.
    """

    def __init__(
        self,
        guard: str,
        files: Mapping[str, bytes],
        command: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        # /dev/shm is in memory: certificates are then written to no disk.
        self._parents = ["/dev/shm", os.path.abspath(tempfile.gettempdir())]
        wanted = {
            "parents": self._parents,
            "files": {name: base64.b64encode(data).decode() for name, data in files.items()},
            "command": list(command),
            "leave_s": LEAVE_S,
        }
        inherited = {name: value for name, value in os.environ.items() if name not in OTHERS}
        # Where the command looks for plugins that are installed beside this Python.
        path = f"{os.path.dirname(sys.executable)}:{inherited.get('PATH', os.defpath)}"
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", guard],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env={**inherited, "PATH": path, **(environment or {})},
        )
        self._folders: list[str] = []
        self._unread = b""
        self._has_lines = False
        assert self._process.stdin and self._process.stdout
        self._asks = self._process.stdin
        self._said = self._process.stdout
        self._ask(json.dumps(wanted))

    def _ask(self, line: str) -> None:
        data = memoryview(f"{line}\n".encode())
        # The guard may have ended, which `read` then finds, or another thread has closed the pipe.
        with contextlib.suppress(BrokenPipeError, ValueError):
            while data:
                data = data[self._asks.write(data) :]

    def read(self, limit_s: float | None = None) -> tuple[str, str]:
        """The guard's next line, as its kind and the rest; ("exit", "") if it was killed, once its
        folders are removed, and ("error", why) if it says nothing within `limit_s`, likewise.
        """
        line = self._next_line(limit_s)
        if line is None:
            kind, rest = "error", f"its guard has said nothing for {limit_s:g} s"
        else:
            kind, _, rest = line.decode(errors="replace").partition(" ")
        if kind == "folder" and not self._note_folder(rest):
            kind, rest = "error", f"its guard names the folder {rest!r}, which is not its own"
        self._has_lines |= kind == "line"
        if kind in ("", "exit", "error"):
            self._close(killed=kind != "exit")
        return kind or "exit", rest

    def _next_line(self, limit_s: float | None) -> bytes | None:
        """Up to the next \\n; empty at the end of the guard's output; None after `limit_s`."""
        until = None if limit_s is None else time.monotonic() + limit_s
        if self._said.closed:
            return b""
        poll = select.poll()
        poll.register(self._said, select.POLLIN)
        while b"\n" not in self._unread:
            left_s = None if until is None else max(0.0, until - time.monotonic())
            if not poll.poll(None if left_s is None else 1000 * left_s):
                return None
            data = self._said.read(READ_BYTES)
            if not data:
                return b""
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def _note_folder(self, path: str) -> bool:
        """Whether `path` can be a folder that the guard has made, before it ran the command."""
        parent, name = os.path.split(path)
        if self._has_lines or parent not in self._parents or not name.startswith(FOLDER_PREFIX):
            return False
        self._folders.append(path)
        return True

    def _close(self, *, killed: bool) -> None:
        self._said.close()
        self.end()
        if killed:
            self.remove()
        # The process that Popen knows ends when the guard has started.
        try:
            self._process.wait(0 if killed else START_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(START_LIMIT_S)

    def end(self) -> None:
        """Asks for the end; `read` says when it has come."""
        self._ask("end")  # the pipe alone may be open in another process, too
        self._asks.close()

    def finish(self, limit_s: float) -> None:
        """Asks for the end and returns when it has come, or when the folders have been removed here
        after `limit_s`.
        """
        self.end()
        until = time.monotonic() + limit_s
        while self.read(max(0.0, until - time.monotonic()))[0] not in ("exit", "error"):
            pass

    def remove(self) -> None:
        """Removes the folders of a guard that cannot."""
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)

    def leave_to_parent(self) -> None:
        """In a forked child: the guard is the parent's, and does not outlive it because of this."""
        self._asks.close()
        self._said.close()


class Place:
    """An actor: keeps one process of the cluster running, until `stop`."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._changed = threading.Condition()
        self._guarded: Guarded | None = None
        self._stopping = False
        self._running = False
        self._events: dict[str, str] = {}
        self._tail: collections.deque[str] = collections.deque(maxlen=TAIL_LINES)

    def __repr__(self) -> str:
        """What Ray writes before the actor's output."""
        return f"gangway {self._what}"

    def describe(self, wanted: str) -> dict[str, str]:
        """This node, and what is wrong with it, for a cluster of the version `wanted`."""
        ray = importlib.import_module("ray")
        command = find_gangway()
        return {
            "host": socket.gethostname(),
            "address": ray.util.get_node_ip_address(),
            "node": ray.get_runtime_context().get_node_id(),
            "problem": what_is_wrong(command, version_of(command) if command else "", wanted),
            "gpus": os.environ.get("CUDA_VISIBLE_DEVICES", ""),
        }

    def run(self, spec: dict[str, Any]) -> str:
        """Runs `gangway` with the arguments `spec["arguments"]`; if `spec["again"]`, whenever it
        has ended. Returns, after `stop` or its last end, why it has ended.
        """
        pause_s = 1
        with self._changed:
            self._running = True
        try:
            while True:
                began = time.monotonic()
                reason = self._run_once(spec)
                if time.monotonic() - began > LASTED_S:
                    pause_s = 1
                with self._changed:
                    self._tell("ended", reason)
                    if self._stopping or not spec["again"]:
                        return reason
                    first = reason.partition("\n")[0]  # the rest has been said
                    say(f"{self._what} {first}; it starts again in {pause_s} s")
                    if self._changed.wait_for(lambda: self._stopping, pause_s):
                        return reason
                pause_s = min(2 * pause_s, PAUSE_S_MAX)
        finally:
            with self._changed:
                self._running = False
                self._changed.notify_all()

    def _run_once(self, spec: dict[str, Any]) -> str:
        command = find_gangway()
        version = version_of(command) if command else ""
        if problem := what_is_wrong(command, version, spec["version"]):
            return f"cannot run: its node, {socket.gethostname()}, {problem}"
        with self._changed:
            if self._stopping:
                return "was stopped"
            arguments = [command, *spec["arguments"]]
            try:
                guarded = Guarded(spec["guard"], spec["files"], arguments, spec["environment"])
            except OSError as error:
                return f"cannot start: {error}"
            self._guarded = guarded
        self._tail.clear()
        while True:
            kind, rest = guarded.read()
            if kind == "error":
                return f"cannot start: {rest}"
            if kind == "exit":
                said = "".join(f"\n  {line}" for line in self._tail)
                return f"has ended with status {rest or 'unknown'}{said}"
            if kind == "line":
                say(rest)
                self._tail.append(rest)
                for event, mark in spec["marks"].items():
                    if mark in rest:
                        with self._changed:
                            self._tell(event, rest.partition(mark)[2])

    def _tell(self, event: str, text: str) -> None:
        self._events.setdefault(event, text)
        self._changed.notify_all()

    def until(self, event: str, limit_s: float) -> dict[str, str]:
        """What has happened so far, once `event` or the process's end has, or after `limit_s`."""
        with self._changed:
            self._changed.wait_for(lambda: {event, "ended"} & self._events.keys(), limit_s)
            return dict(self._events)

    def stop(self) -> None:
        """Returns when the process has ended, and its folder is gone."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
            if self._guarded:
                self._guarded.end()
            ended = self._changed.wait_for(lambda: not self._running, LEAVE_S + END_GRACE_S)
            if not ended and self._guarded:
                self._guarded.remove()
