"""DLPack imports through the plugin: `jax.dlpack.from_dlpack`, `jnp.from_dlpack`.

JAX imports memory of the host to the backend `cpu`, which is this process's own. If the script's
default devices are a cluster's CPUs, the arrays belong there, as they do without a cluster.
"""

from __future__ import annotations

import functools
from typing import Any


class _Platforms(dict[Any, str]):
    """JAX's names of backends by the type of a DLPack device."""

    def __init__(self, names: dict[Any, str], backend: str) -> None:
        super().__init__(names)
        self._backend = backend

    def __getitem__(self, device_type: Any) -> str:
        name = super().__getitem__(device_type)
        return self._backend if name == "cpu" and _is_default(self._backend) else name


def _is_default(name: str) -> bool:
    """Whether scripts use the backend `name` unless they name another, and its devices are CPUs."""
    from jax._src import xla_bridge

    default = xla_bridge.get_backend()
    return default.platform == "cpu" and default is xla_bridge.backends().get(name)


def install(name: str) -> None:
    """For the backend `name`, once."""
    from jax._src import dlpack, xla_bridge
    from jaxlib import _jax

    dlpack._DL_DEVICE_TO_PLATFORM = _Platforms(dlpack._DL_DEVICE_TO_PLATFORM, name)
    make = _jax.dlpack_managed_tensor_to_buffer

    @functools.wraps(make)
    def to_buffer(tensor: Any, device: Any, stream: Any, copy: Any = None, *rest: Any) -> Any:
        # The plugin always copies; jaxlib's own way to do so is one that no plugin can offer.
        if copy and device.client is xla_bridge.backends().get(name):
            copy = None
        return make(tensor, device, stream, copy, *rest)

    _jax.dlpack_managed_tensor_to_buffer = to_buffer
