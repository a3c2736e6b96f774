"""Start a Gangway cluster inside an existing Ray cluster, for as long as a script needs it:

    import gangway.ray

    with gangway.ray.up(workers=4, devices=2) as cluster:
        cluster.connect()

        import jax
        jax.devices()        # eight, on up to four nodes of the Ray cluster

Ray places the controller and the workers, each as an actor that this process owns. So everything
ends with the `with` block or `down()`, and also when this process dies. When Ray loses a node, the
arrays there are lost (DATA_LOSS), and the node's workers come back on another one that has room.

`python -m gangway.ray --workers 4 script.py` runs an unmodified JAX script so.

Importing this module does not import Ray or JAX.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import importlib
import math
import os
import pathlib
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gangway._errors import GangwayError
from gangway._ray_actors import Actors, files_in, guard_text
from gangway._ray_place import LEAVE_S, Guarded, find_gangway, version_of
from gangway._ray_wanted import Deadline, Wanted, is_amount

if TYPE_CHECKING:
    import jax

DEFAULT_NAME = "gangway"
START_LIMIT_S = 120.0
CERTS_LIMIT_S = 60.0
FOLDER_LIMIT_S = 30.0  # until a guard has made its folder

_claims = threading.Lock()  # of _clusters
_clusters: list[Cluster] = []  # those that this process starts, has up or ends
_accesses: list[Guarded] = []
_held: weakref.WeakSet[Guarded] = weakref.WeakSet()  # folders of this process


def _leave_to_parent() -> None:
    for guarded in list(_held):
        guarded.leave_to_parent()
    _held.clear()


os.register_at_fork(after_in_child=_leave_to_parent)


def up(
    workers: int = 1,
    *,
    devices: int | None = None,
    islands: int = 1,
    num_cpus: float = 1,
    num_gpus: float = 0,
    per_node: int | None = None,
    plugin: str | None = None,
    name: str = DEFAULT_NAME,
    options: Sequence[str] = (),
    controller_cpus: float = 1,
    resources: Mapping[str, float] | None = None,
    runtime_env: Mapping[str, Any] | None = None,
    start_limit_s: float = START_LIMIT_S,
) -> Cluster:
    """Starts a cluster in the Ray cluster that this process is connected to, or else in the one
    that runs on this host or that RAY_ADDRESS names. Returns when all workers are up.

    Args:
      workers: how many, in all islands together.
      devices: of each worker; its GPUs, or else 1 CPU device, if None.
      islands: into which the workers are divided.
      num_cpus: CPUs of Ray that each worker takes; may be a fraction.
      num_gpus: GPUs of Ray that each worker takes and sees.
      per_node: at most this many workers on each node, and no node twice: the last node has the
        rest. If None, Ray spreads the workers over its nodes as well as it can.
      plugin: "cpu", "cuda", or the path of a PJRT plugin on the nodes; if None, "cuda" for workers
        with GPUs, and else "cpu".
      name: of the actors and the placement group; unique in the Ray namespace of this process.
      options: more options of `gangway controller`, such as ["--memory", "8GB"].
      controller_cpus: CPUs of Ray for the controller and the compiler. They are on the node of the
        first worker.
      resources: other resources of Ray that each worker takes.
      runtime_env: of the actors, as Ray defines it; if None, that of the job.
      start_limit_s: seconds until all workers must be up.

    Raises:
      GangwayError: Ray is not installed or not reached, has no room, or the cluster does not start;
        the message says what is asked, and what is free or failed where. Nothing is left behind.
      ValueError: an argument is wrong.
    """
    if isinstance(options, str) or not all(isinstance(word, str) for word in options):
        raise ValueError(f"options={options!r} is not a list of words")
    wanted = Wanted(
        workers=workers,
        devices=_devices(devices, num_gpus),
        islands=islands,
        num_cpus=num_cpus,
        num_gpus=num_gpus,
        per_node=per_node,
        plugin=plugin or ("cuda" if num_gpus else "cpu"),
        name=name,
        options=tuple(options),
        controller_cpus=controller_cpus,
        resources=dict(resources or {}),
        runtime_env=None if runtime_env is None else dict(runtime_env),
    )
    wanted.check()
    if not isinstance(start_limit_s, int | float) or not 0 < start_limit_s < math.inf:
        raise ValueError(f"start_limit_s={start_limit_s!r} is not a number above 0")
    ray = _connected_ray()
    cluster = Cluster(ray, wanted, Deadline(start_limit_s))
    atexit.register(cluster.down)  # before Ray's own, which was registered earlier
    return cluster


def _devices(devices: int | None, num_gpus: float) -> int:
    if devices is not None:
        return devices
    return max(1, int(num_gpus)) if is_amount(num_gpus) else 1  # Wanted.check names it


def _connected_ray() -> Any:
    """The module `ray`, connected to a cluster."""
    try:
        ray = importlib.import_module("ray")
        for part in ("ray.cloudpickle", "ray.exceptions", "ray.util.scheduling_strategies"):
            importlib.import_module(part)
    except ImportError as error:
        raise GangwayError(
            f"gangway.ray needs Ray, which this Python ({sys.executable}) cannot import: {error}; "
            "pip install ray, in the version of the Ray cluster"
        ) from error
    if not ray.is_initialized():
        try:
            ray.init(address="auto")
        except ConnectionError as error:
            raise GangwayError(
                "no Ray cluster runs on this host, and RAY_ADDRESS names none: `ray start --head` "
                "starts one, and ray.init() one for this process alone"
            ) from error
    if ray.util.client.ray.is_connected():
        raise GangwayError(
            "this process uses Ray through Ray Client (ray://), so it may not reach the nodes "
            "themselves: run it on a node of the Ray cluster, for example by `ray job submit`"
        )
    return ray


@dataclasses.dataclass(frozen=True)
class Access:
    """What lets a process use a cluster as a client. It can be passed to Ray's tasks and actors,
    such as the workers of Ray Train, and is as secret as the files in it.
    """

    address: str
    files: Mapping[str, bytes] = dataclasses.field(repr=False)

    def connect(self, *, local_cpu: bool = True) -> list[jax.Device]:
        """Makes the cluster JAX's default backend in this process, as `gangway.connect` does, and
        returns its devices. The files lie in a folder of this process, which ends with it.

        Raises:
          GangwayError, ValueError: as `gangway.connect`.
        """
        from gangway import connect

        guarded, folder = _hold_folder(self.files)
        try:
            devices = connect(self.address, tls=folder, local_cpu=local_cpu)
        except BaseException:
            guarded.end()
            raise
        _accesses.append(guarded)
        return devices


class Cluster:
    """A running cluster; `up` makes it.

    Attributes:
      address: HOST:PORT of the controller.
      tls: a folder with the cluster's certificates and tokens, which open everything. It is on this
        host, in memory where the host has /dev/shm, and ends with the cluster.
      name: as in `up`.
    """

    def __init__(self, ray: Any, wanted: Wanted, deadline: Deadline) -> None:
        self.name = wanted.name
        self.address = ""
        self.tls = ""
        self._ray = ray
        self._workers = wanted.workers
        self._job = ray.get_runtime_context().get_job_id()
        self._pid = os.getpid()
        self._ends = threading.Lock()
        self._is_down = False  # or is ending
        self._has_ended = threading.Event()
        self._secrets: Guarded | None = None
        command = _command()
        self._actors = Actors(ray, wanted, version_of(command))
        try:
            self._claim_name(deadline)
            self._make_certificates(command)
            self._actors.place(deadline)
            self.address = self._actors.start(pathlib.Path(self.tls), deadline, self._note_loss)
        except BaseException:
            self.down()
            raise

    def __repr__(self) -> str:
        state = "down" if self._is_down else f"at {self.address}"
        return f"<gangway.ray.Cluster {self.name!r}, {self._workers} workers, {state}>"

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    @property
    def nodes(self) -> list[str]:
        """The address of the node on which each worker was placed at the start."""
        return list(self._actors.nodes)

    @property
    def access(self) -> Access:
        """For other processes."""
        return Access(self.address, files_in(pathlib.Path(self.tls) / "client"))

    @property
    def environment(self) -> dict[str, str]:
        """Variables by which other processes of this host find the cluster: `gangway status`,
        `gangway run`, and scripts that call `gangway.connect()`.
        """
        return {"GANGWAY_ADDRESS": self.address, "GANGWAY_TLS": self.tls}

    def connect(self, *, local_cpu: bool = True) -> list[jax.Device]:
        """Makes the cluster JAX's default backend, as `gangway.connect` does, and returns its
        devices.

        Raises:
          GangwayError, ValueError: as `gangway.connect`.
        """
        from gangway import connect

        if self._is_down:
            raise GangwayError(
                f"the cluster {self.name!r} is down: start another by gangway.ray.up()"
            )
        return connect(self.address, tls=self.tls, local_cpu=local_cpu)

    def down(self) -> None:
        """Ends the cluster; workers have 10 s to finish what they do. Returns when its processes
        and files are gone, and Ray has the resources back. A second call does nothing, and neither
        does one in a forked child of the process that has called `up`.
        """
        if os.getpid() != self._pid:
            return
        with self._ends:
            if self._is_down:
                return
            self._is_down = True
            try:
                if self._is_connected():
                    self._actors.end()
            finally:
                if self._secrets:
                    self._secrets.finish(LEAVE_S)
                with _claims, contextlib.suppress(ValueError):
                    _clusters.remove(self)
                self._has_ended.set()
                atexit.unregister(self.down)

    def _is_connected(self) -> bool:
        """Whether this process is still connected to the Ray cluster as it was at the start. If it
        is not, Ray has ended the actors.
        """
        ray = self._ray
        return bool(ray.is_initialized() and ray.get_runtime_context().get_job_id() == self._job)

    def _claim_name(self, deadline: Deadline) -> None:
        """Waits for a cluster of this name that is ending."""
        while other := self._other_of_name():
            if not other._is_down:
                where = f"up, at {other.address}" if other.address else "starting"
                raise GangwayError(
                    f"this process already has the cluster {self.name!r} {where}: "
                    "use it, end it by its down(), or give the new one another name"
                )
            if not other._has_ended.wait(deadline.left_s()):
                raise GangwayError(
                    f"the last cluster {self.name!r} of this process has not ended within "
                    f"{deadline.limit_s:g} s (start_limit_s): wait longer, or give the new one "
                    "another name"
                )
        self._actors.check_name()

    def _other_of_name(self) -> Cluster | None:
        """Takes the name if there is none."""
        with _claims:
            for other in _clusters:
                # One of another job was in a Ray cluster that this process has left.
                if other.name == self.name and other._job == self._job:
                    return other
            _clusters.append(self)
            return None

    def _make_certificates(self, command: str) -> None:
        self._secrets, folder = _hold_folder({})
        self.tls = os.path.join(folder, "tls")
        made = [[self.tls, "--any-host"]]
        made += [
            [self.tls, "--add", role, "--role", role] for role in ("controller", "worker", "client")
        ]
        for arguments in made:
            _run_certs([command, "certs", *arguments])

    def _note_loss(self, reason: str) -> None:
        if self._is_down:
            return
        print(
            f"gangway: the cluster {self.name!r} is lost: its controller {reason}\n"
            "gangway: start another by gangway.ray.up(), in a new process if JAX is in use",
            file=sys.stderr,
        )
        threading.Thread(target=self.down, daemon=True).start()


def _command() -> str:
    if command := find_gangway():
        return command
    raise GangwayError(
        f"this Python ({sys.executable}) finds no command gangway: install the wheel "
        "gangway-runtime here and on all nodes"
    )


def _run_certs(command: list[str]) -> None:
    words = " ".join(["gangway", *command[1:]])
    try:
        told = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=CERTS_LIMIT_S
        )
    except subprocess.TimeoutExpired as error:
        raise GangwayError(
            f"{words} has not ended within {CERTS_LIMIT_S:g} s: is this host overloaded?"
        ) from error
    except OSError as error:
        raise GangwayError(f"{words} cannot be run: {error}") from error
    if told.returncode:
        raise GangwayError(f"{words} failed: {told.stderr.strip()}")


def _hold_folder(files: Mapping[str, bytes]) -> tuple[Guarded, str]:
    """A folder with these files, which ends with this process, or by `end` of the first result."""
    try:
        guarded = Guarded(guard_text(), files)
    except OSError as error:
        raise GangwayError(f"cannot hold the certificates of a cluster: {error}") from error
    _held.add(guarded)
    kind, rest = guarded.read(FOLDER_LIMIT_S)
    if kind != "folder":
        guarded.end()
        raise GangwayError(f"cannot hold the certificates of a cluster: {rest}")
    return guarded, rest


if __name__ == "__main__":
    from gangway import _ray_command

    _ray_command.main()
