"""The names by which JAX finds a cluster's devices, beside that of its backend.

JAX looks up the platform that a device says of itself: `jax.devices("gpu")`, `jit(backend="cuda")`
and its own code do so. On a cluster of GPUs, that name leads to the cluster, unless this process
has a backend of that platform itself. `cpu` stays this process's own.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def named(factory: Callable[..., Any]) -> Callable[..., Any]:
    """A factory of a backend of JAX, which is then found by its platform's name, too. JAX calls it
    with its own lock held.
    """

    @functools.wraps(factory)
    def make(*arguments: Any, **options: Any) -> Any:
        from jax._src import xla_bridge

        backend = factory(*arguments, **options)
        platform = backend.platform
        if platform == "gpu":  # jaxlib's name for several
            platform = "rocm" if "rocm" in backend.platform_version.lower() else "cuda"
        if platform != "cpu":
            xla_bridge._backends.setdefault(platform, backend)
        return backend

    return make


def install(name: str) -> None:
    """For the backend that is registered under `name`."""
    import dataclasses

    from jax._src import xla_bridge

    registration = xla_bridge._backend_factories[name]
    xla_bridge._backend_factories[name] = dataclasses.replace(
        registration, factory=named(registration.factory)
    )
