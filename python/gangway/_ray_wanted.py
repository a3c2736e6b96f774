"""What `gangway.ray.up` is asked for, as Ray's resources, and what Ray has."""

from __future__ import annotations

import collections
import dataclasses
import importlib
import math
import time
from collections.abc import Mapping
from typing import Any

NODES_SHOWN = 8  # in messages


@dataclasses.dataclass(frozen=True)
class Wanted:
    """The arguments of `up`."""

    workers: int
    devices: int
    islands: int
    num_cpus: float
    num_gpus: float
    per_node: int | None
    plugin: str
    name: str
    options: tuple[str, ...]
    controller_cpus: float
    resources: dict[str, float]
    runtime_env: dict[str, Any] | None

    def check(self) -> None:
        for argument in ("workers", "devices", "islands", "per_node"):
            value = getattr(self, argument)
            if value is None and argument == "per_node":
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{argument}={value!r} is not a number of at least 1")
        for argument in ("num_cpus", "num_gpus", "controller_cpus"):
            value = getattr(self, argument)
            if not is_amount(value):
                raise ValueError(f"{argument}={value!r} is not a number of at least 0")
            if value > 1 and value != int(value):
                raise ValueError(
                    f"{argument}={value}: Ray gives out parts of one, and whole ones only"
                )
        for name, value in self.resources.items():
            if not isinstance(name, str) or name in ("CPU", "GPU") or not is_amount(value):
                raise ValueError(
                    f"resources={self.resources!r} is not names of Ray's other resources with "
                    "numbers of at least 0; CPUs and GPUs are num_cpus and num_gpus"
                )
        if self.workers % self.islands:
            raise ValueError(
                f"{self.workers} workers cannot be divided over {self.islands} islands"
            )
        if not isinstance(self.name, str) or not self.name or not self.name.isprintable():
            raise ValueError(f"name={self.name!r} is not a name")
        if not any(self.of_worker().values()):
            raise ValueError(
                "num_cpus=0 without GPUs or other resources: Ray would place any number of "
                "such workers on a node; give each at least a part of a CPU, such as num_cpus=0.5"
            )

    def of_worker(self) -> dict[str, float]:
        """Ray's resources of one worker."""
        return {"CPU": self.num_cpus, "GPU": self.num_gpus, **self.resources}

    def bundles(self) -> list[dict[str, float]]:
        """What must be on one node each; the first has the controller, too."""
        each = self.per_node or 1
        made = []
        for first in range(0, self.workers, each):
            count = min(each, self.workers - first)
            made.append({name: count * value for name, value in self.of_worker().items() if value})
        made[0]["CPU"] = made[0].get("CPU", 0) + self.controller_cpus
        if not made[0]["CPU"]:
            del made[0]["CPU"]
        return made

    def bundle_of(self, worker: int) -> int:
        return worker // (self.per_node or 1)

    def strategy(self) -> str:
        return "STRICT_SPREAD" if self.per_node else "SPREAD"

    def in_words(self) -> str:
        counts = collections.Counter(resources_in_words(bundle) for bundle in self.bundles())
        parts = ", ".join(f"{count} x ({words})" for words, count in counts.items())
        return parts + (", each on a node of its own" if self.per_node else "")


def is_amount(value: object) -> bool:
    return isinstance(value, int | float) and 0 <= value < math.inf


class Deadline:
    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._at = time.monotonic() + limit_s

    def left_s(self) -> float:
        return max(0.0, self._at - time.monotonic())


def resources_in_words(resources: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in resources.items()) or "nothing"


def in_address(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def room(ray: Any, wanted: Wanted) -> str:
    """What is asked, and what is free where."""
    names = [name for name, value in wanted.of_worker().items() if value or name == "CPU"]
    return f"asked are {wanted.in_words()}; free are {_free(ray, names)}"


def _free(ray: Any, names: list[str]) -> str:
    def in_words(found: Mapping[str, float]) -> str:
        return resources_in_words({name: found.get(name, 0) for name in names})

    try:
        # Ray has no public call that says it of each node.
        free = importlib.import_module("ray._private.state").available_resources_per_node()
        nodes = [node for node in ray.nodes() if node["Alive"]]
        shown = [
            f"{in_words(free.get(node['NodeID'], {}))} on {node['NodeManagerAddress']}"
            for node in nodes[:NODES_SHOWN]
        ]
    except Exception:  # another version of Ray
        return f"{in_words(ray.available_resources())} on all nodes together"
    more = f" and {len(nodes) - NODES_SHOWN} more nodes" if len(nodes) > NODES_SHOWN else ""
    return f"{'; '.join(shown)}{more}"
