"""The devices that a case may put into one mesh: those of one worker, since a jit stays within a worker.
Other devices are sources and targets of `device_put`.

Before each case, the runner sets the number of devices per worker and the case's worker, so that a
reference, whose one process holds all devices, computes on the same ones.
"""

import jax
import numpy as np
from jax.sharding import Mesh

_per_worker = 8
_worker = 0


def use(per_worker: int, worker: int) -> None:
    global _per_worker, _worker
    _per_worker, _worker = per_worker, worker


def worker_devices(offset: int = 0) -> list[jax.Device]:
    """The devices of the case's worker, or of the `offset`th after it."""
    devices = jax.devices()
    first = (_worker + offset) * _per_worker % len(devices)
    return devices[first : first + _per_worker]


def two_halves() -> tuple[list[jax.Device], list[jax.Device]]:
    """Devices of two workers, or the halves of the only one."""
    devices = worker_devices()
    if len(devices) < len(jax.devices()):
        return devices, worker_devices(1)
    return devices[: len(devices) // 2], devices[len(devices) // 2 :]


def mesh2d() -> Mesh:
    """(x, y) is 2x4 on eight devices, 2x2 on four, 1x2 on two."""
    devices = worker_devices()
    return Mesh(np.array(devices).reshape(2 if len(devices) >= 4 else 1, -1), ("x", "y"))
