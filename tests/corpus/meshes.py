"""Meshes over the eight devices, and what programs need to place arrays on them."""

from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P


def grid(**axes: int) -> Mesh:
    """A mesh whose axes have these sizes, over the first devices."""
    count = int(np.prod(list(axes.values())))
    return Mesh(np.array(jax.devices()[:count]).reshape(*axes.values()), tuple(axes))


def ring(name: str = "i") -> Mesh:
    return grid(**{name: 8})


def permuted(**axes: int) -> Mesh:
    """A mesh in which neighbours are seldom on the same worker."""
    order = [0, 5, 2, 7, 4, 1, 6, 3]
    devices = np.array(jax.devices())[order]
    return Mesh(devices.reshape(*axes.values()), tuple(axes))


def place(mesh: Mesh, array: Any, *spec: Any) -> jax.Array:
    return jax.device_put(array, NamedSharding(mesh, P(*spec)))


def mapped(mesh: Mesh, in_specs: Any, out_specs: Any):
    """Decorator: a jitted shard_map over the mesh."""
    return lambda body: jax.jit(
        jax.shard_map(body, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)
    )


def values(*shape: int, seed: int = 0, scale: float = 1.0, dtype: Any = np.float32) -> np.ndarray:
    return (np.random.default_rng([seed, *shape]).standard_normal(shape) * scale).astype(dtype)


def fetch(tree: Any) -> Any:
    """Every shard that a process can see, so that replicas which differ are found."""
    return jax.tree.map(lambda a: [np.asarray(shard.data) for shard in a.addressable_shards], tree)
