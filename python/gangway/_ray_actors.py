"""The placement group and the actors of a cluster inside Ray: made, started and ended.

Used by one thread, but for `end`, which is called once. What fails raises GangwayError, and leaves
it to the caller to call `end`.
"""

from __future__ import annotations

import collections
import importlib
import math
import pathlib
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from gangway import _ray_place
from gangway._errors import GangwayError
from gangway._ray_wanted import NODES_SHOWN, Deadline, Wanted, in_address, room

ROOM_NOTICE_S = 10.0  # without room, after which the script's user is told
NAME_FREE_S = 10.0  # that Ray takes to forget the name of an actor that has ended
GRACE_S = 5.0  # beyond a limit that an actor itself keeps
THREADS = 8  # of an actor: more than the methods that are called on it at the same time


def guard_text() -> str:
    return pathlib.Path(__file__).with_name("_guard.py").read_text()


def files_in(folder: pathlib.Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


class Actors:
    """Attributes:
    nodes: the address of the node on which each worker was placed, once `place` has returned.
    """

    def __init__(self, ray: Any, wanted: Wanted, version: str) -> None:
        self.nodes: list[str] = []
        self._ray = ray
        self._wanted = wanted
        self._version = version
        self._group: Any = None
        self._controller: Any = None
        self._workers: list[Any] = []
        self._started = False
        self._described: list[dict[str, str]] = []  # the controller's first

    def check_name(self) -> None:
        """Fails if a cluster of this name is up in the Ray namespace."""
        if self._exists(0):
            self._refuse_name()

    def place(self, deadline: Deadline) -> None:
        """Waits until Ray has placed all actors, on nodes that can run the cluster."""
        self._reserve(deadline)
        self._make()
        self._describe(deadline)
        self.nodes = [each["address"] for each in self._described[1:]]

    def end(self) -> None:
        """Returns when the processes have ended, and Ray has the resources and names back."""
        ray = self._ray
        controllers = [self._controller] if self._controller else []
        for group in (self._workers, controllers) if self._started else ():
            stops = [actor.stop.options(max_task_retries=0).remote() for actor in group]
            if stops:
                ray.wait(stops, num_returns=len(stops), timeout=_ray_place.LEAVE_S + 10)
        for handle in (*self._workers, *controllers):
            ray.kill(handle)
        if self._group:
            importlib.import_module("ray.util.placement_group").remove_placement_group(self._group)
        deadline = Deadline(NAME_FREE_S)
        for actor in range(len(controllers) + len(self._workers)):
            while deadline.left_s() and self._exists(actor):
                time.sleep(0.02)

    def _refuse_name(self) -> NoReturn:
        namespace = self._ray.get_runtime_context().namespace
        raise GangwayError(
            f"another process has a cluster {self._wanted.name!r} up in the Ray namespace "
            f"{namespace!r}: choose another name, or another namespace in ray.init()"
        )

    def _name(self, actor: int) -> str:
        return f"{self._wanted.name}: {self._role(actor)}"

    def _exists(self, actor: int) -> bool:
        try:
            self._ray.get_actor(self._name(actor))
        except ValueError:
            return False
        return True

    def _reserve(self, deadline: Deadline) -> None:
        """Waits until Ray has a placement group for all actors."""
        module = importlib.import_module("ray.util.placement_group")
        self._group = module.placement_group(
            self._wanted.bundles(), strategy=self._wanted.strategy(), name=self._wanted.name
        )
        notice = Deadline(ROOM_NOTICE_S)
        noticed = False
        while not self._group.wait(min(1.0, deadline.left_s())):
            if not deadline.left_s():
                raise GangwayError(
                    f"Ray had no room for the cluster {self._wanted.name!r} within "
                    f"{deadline.limit_s:g} s: {room(self._ray, self._wanted)}. Ask for less, "
                    "end what holds the rest, add nodes, or wait longer (start_limit_s)"
                )
            if not noticed and not notice.left_s():
                noticed = True
                print(
                    f"gangway: the cluster {self._wanted.name!r} waits for room in Ray: "
                    f"{room(self._ray, self._wanted)}",
                    file=sys.stderr,
                )

    def _make(self) -> None:
        wanted = self._wanted
        self._ray.cloudpickle.register_pickle_by_value(_ray_place)
        place = self._ray.remote(_ray_place.Place)
        strategies = importlib.import_module("ray.util.scheduling_strategies")

        def make(actor: int, bundle: int, restarts: int, **options: Any) -> Any:
            return place.options(
                name=self._name(actor),
                max_restarts=restarts,
                max_task_retries=restarts,
                max_concurrency=THREADS,
                scheduling_strategy=strategies.PlacementGroupSchedulingStrategy(
                    placement_group=self._group, placement_group_bundle_index=bundle
                ),
                **({} if wanted.runtime_env is None else {"runtime_env": wanted.runtime_env}),
                **options,
            ).remote(self._role(actor))

        try:
            # A controller that is lost cannot come back: it holds the sessions.
            self._controller = make(0, 0, 0, num_cpus=wanted.controller_cpus)
            for worker in range(wanted.workers):
                made = make(
                    1 + worker,
                    wanted.bundle_of(worker),
                    -1,
                    num_cpus=wanted.num_cpus,
                    num_gpus=wanted.num_gpus,
                    resources=wanted.resources,
                )
                self._workers.append(made)
        except ValueError as error:  # it is created since _check_name
            if self._exists(0) and not self._controller:
                self._refuse_name()
            raise GangwayError(
                f"Ray cannot make the actors of {self._wanted.name!r}: {error}"
            ) from error

    def _describe(self, deadline: Deadline) -> None:
        """Finds out where the actors are; fails if a node cannot run the cluster."""
        ray = self._ray
        actors = [self._controller, *self._workers]
        asked = [a.describe.options(max_task_retries=0).remote(self._version) for a in actors]
        pending = list(asked)
        while pending:
            done, pending = ray.wait(pending, timeout=deadline.left_s())
            if not done:
                names = ", ".join(self._role(asked.index(ref)) for ref in pending[:NODES_SHOWN])
                raise GangwayError(
                    f"Ray has not started the actors of {names} in {self._wanted.name!r} within "
                    f"{deadline.limit_s:g} s (start_limit_s): Ray's logs on the nodes may say why"
                )
            role = self._role(asked.index(done[0]))
            try:
                found = ray.get(done[0])
            except ray.exceptions.RayError as error:
                raise GangwayError(f"Ray could not start the actor of {role}: {error}") from error
            if found["problem"]:
                raise GangwayError(
                    f"the node {found['host']} ({found['address']}), on which Ray places {role}, "
                    f"{found['problem']}"
                )
        self._described = ray.get(asked)

    def _role(self, actor: int) -> str:
        return f"worker {actor - 1}" if actor else "controller"

    def start(self, tls: pathlib.Path, deadline: Deadline, lost: Callable[[str], None]) -> str:
        """Starts the cluster with the certificates in `tls`; returns its address when all workers
        are up. From then on, the end of the controller calls `lost` with the reason, on a thread of
        Ray's, which may not wait.
        """
        run = self._start_controller(tls / "controller", deadline)
        address = self._await_address(deadline)
        on_node = collections.Counter(each["node"] for each in self._described[1:])
        for worker, actor in enumerate(self._workers):
            arguments = [
                *("worker", "--index", str(worker), "--connect", address),
                *("--tls", "{folder}", "--leave-limit", str(_ray_place.LEAVE_S)),
                *("--workers-per-host", str(on_node[self._described[1 + worker]["node"]])),
            ]
            actor.run.remote(self._spec(tls / "worker", arguments, again=True))
        self._await_ready(deadline)
        run.future().add_done_callback(
            lambda done: lost(str(done.exception()) if done.exception() else done.result())
        )
        return address

    def _start_controller(self, tls: pathlib.Path, deadline: Deadline) -> Any:
        """Returns Ray's reference to why it has ended."""
        wanted = self._wanted
        arguments = [
            *("controller", "--islands", str(wanted.islands)),
            *("--workers", str(wanted.workers // wanted.islands)),
            *("--devices", str(wanted.devices), "--plugin", wanted.plugin),
            *("--listen", f"{in_address(self._described[0]['address'])}:0", "--port", "0"),
            *("--tls", "{folder}", "--state-dir", "{scratch}"),
            *("--ready-limit", str(math.ceil(deadline.left_s()) or 1)),
            *wanted.options,
        ]
        spec = self._spec(tls, arguments, again=False)
        spec["marks"] = {"listening": "control at ", "ready": "ready: "}
        if wanted.num_gpus:
            # It has no GPU of its own: it compiles on that of the first worker, beside it.
            spec["environment"] = {"CUDA_VISIBLE_DEVICES": self._described[1]["gpus"]}
        self._started = True
        return self._controller.run.remote(spec)

    def _spec(self, tls: pathlib.Path, arguments: list[str], *, again: bool) -> dict[str, Any]:
        """What `Place.run` takes. It is passed to a method, and not when the actor is created: what
        creates an actor is kept by Ray.
        """
        return {
            "again": again,
            "guard": guard_text(),
            "version": self._version,
            "files": files_in(tls),
            "arguments": arguments,
            "environment": {},
            "marks": {},
        }

    def _await_address(self, deadline: Deadline) -> str:
        limit_s = deadline.left_s()
        ref = self._controller.until.remote("listening", limit_s)
        heard = self._heard(ref, limit_s + GRACE_S)
        if "listening" not in heard:
            self._fail(0, heard)
        return heard["listening"].partition(",")[0]

    def _heard(self, ref: Any, limit_s: float) -> dict[str, str]:
        """What `Place.until` returns; a lost actor has ended, too."""
        try:
            heard: dict[str, str] = self._ray.get(ref, timeout=limit_s)
        except self._ray.exceptions.GetTimeoutError:
            return {}
        except self._ray.exceptions.RayError as error:
            return {"ended": f"is lost: {error}", "lost": ""}
        return heard

    def _await_ready(self, deadline: Deadline) -> None:
        """Returns when all workers are up; fails as soon as a process has ended."""
        # The controller itself ends when its limit has passed, and names the absent workers.
        limit_s = deadline.left_s() + GRACE_S
        asked = [self._controller.until.remote("ready", limit_s)]
        asked += [
            actor.until.options(max_task_retries=0).remote("ended", limit_s)
            for actor in self._workers
        ]
        pending = list(asked)
        while True:
            done, pending = self._ray.wait(pending, timeout=limit_s + GRACE_S)
            if not done:
                self._fail(0, {})
            actor = asked.index(done[0])
            heard = self._heard(done[0], GRACE_S)
            if "ready" in heard:
                return
            if actor and "lost" in heard:
                continue  # Ray starts this worker again
            if not actor or "ended" in heard:
                self._fail(actor, heard)

    def _fail(self, actor: int, heard: Mapping[str, str]) -> NoReturn:
        node = self._described[actor]
        why = heard.get("ended", "was not ready within the limit (start_limit_s)")
        raise GangwayError(
            f"the cluster {self._wanted.name!r} did not start: {self._role(actor)} on "
            f"{node['host']} ({node['address']}) {why}"
        )
