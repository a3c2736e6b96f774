"""The names by which JAX finds a cluster's devices, beside that of its backend.

JAX looks up the platform that a device says of itself: `jax.devices(jax.default_backend())`,
`jit(backend=device.platform)`, libraries and its own code do so. That name leads to the cluster,
as it leads to JAX's own devices without one. On a cluster of GPUs, `gpu` and `cuda` do, unless this
process has such a backend itself, and `cpu` is this process's own. On a cluster of CPU devices,
`cpu` does, and this process's own CPU is `HOST`: JAX's host callbacks get its arrays, and through
the IFRT door, whose client cannot import by DLPack, imports are there.
"""

from __future__ import annotations

import functools
import os
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import types
    from collections.abc import Callable

HOST = "host"
RUN_PID = "GANGWAY_RUN_PID"  # of the script of `gangway run`; its children choose for themselves
_cluster_of_cpus: Any = None


def _named(name: str, factory: Callable[..., Any]) -> Callable[..., Any]:
    """The factory of the backend `name`, which is then found by its platform's name, too. JAX calls
    it with its own lock held.
    """

    @functools.wraps(factory)
    def make(*arguments: Any, **options: Any) -> Any:
        global _cluster_of_cpus
        import jax
        from jax._src import xla_bridge

        backend = factory(*arguments, **options)
        platform = backend.platform
        if platform == "gpu":  # jaxlib's name for several
            platform = "rocm" if "rocm" in backend.platform_version.lower() else "cuda"
        xla_bridge._backends.setdefault(platform, backend)
        _cluster_of_cpus = backend if platform == "cpu" else None
        chosen = jax.config.values.get("jax_platform_name")
        if chosen and chosen not in {name, platform, backend.platform}:
            warn_of_a_choice("jax_platform_name", chosen)
        return backend

    return make


def warn_of_a_choice(option: str, chosen: str) -> None:
    """That a script which `gangway run` started chose `chosen`, which leads off the cluster."""
    if os.environ.get(RUN_PID) == str(os.getpid()):
        warnings.warn(
            f"{option} is {chosen!r}, so this script does not run on the cluster that `gangway "
            "run` gave it: leave the option as it was, or start the script without `gangway run`",
            stacklevel=3,
        )


def _found_as_host(factory: Callable[..., Any]) -> Callable[..., Any]:
    """The factory of this process's own CPU, which is then found by HOST. What this returns is what
    JAX finds as `cpu`.
    """

    @functools.wraps(factory)
    def make(*arguments: Any, **options: Any) -> Any:
        from jax._src import xla_bridge

        local = factory(*arguments, **options)
        xla_bridge._backends[HOST] = local
        in_use = _cluster_of_cpus in xla_bridge._backends.values()
        return _cluster_of_cpus if in_use else local

    return make


class _HostAsCpu:
    """`xla_bridge`, for modules that look for this process's own CPU by the name `cpu`."""

    def __init__(self, module: types.ModuleType) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    def local_devices(self, *arguments: Any, backend: Any = None, **options: Any) -> Any:
        backend = HOST if backend == "cpu" else backend
        return self._module.local_devices(*arguments, backend=backend, **options)

    def get_backend(self, platform: Any = None) -> Any:
        return self._module.get_backend(HOST if platform == "cpu" else platform)


def install(name: str) -> None:
    """For the backend that is registered under `name`."""
    import dataclasses

    from jax._src import callback, debugging, dlpack, xla_bridge
    from jax._src.lax.control_flow import loops

    factories = xla_bridge._backend_factories
    made = _named(name, factories[name].factory)
    factories[name] = dataclasses.replace(factories[name], factory=made)
    if HOST in factories or "cpu" not in factories:
        return
    # JAX knows only names that have a factory. It calls this one only if JAX_PLATFORMS names it.
    factories[HOST] = factories["cpu"]
    factories["cpu"] = dataclasses.replace(
        factories["cpu"], factory=_found_as_host(factories["cpu"].factory)
    )
    for module in (callback, debugging, loops, *([dlpack] if name == "proxy" else [])):
        for attribute in ("xb", "xla_bridge"):
            if getattr(module, attribute, None) is xla_bridge:
                setattr(module, attribute, _HostAsCpu(xla_bridge))
