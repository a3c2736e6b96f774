"""Memory kinds such as `pinned_host` inside compiled programs, on a cluster of CPU devices.

JAX marks a value that is to be in another kind of memory with a custom call, and a program's result
with an attribute. XLA's CPU runtime knows neither. On CPU devices every kind is the host's memory,
so that there is nothing to move: programs for the plugin are lowered without the custom call, and
the plugin is told the kinds of the results. Local CPU devices and other platforms are left as they
are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

OPTION = "gangway_result_memory_kinds"  # the plugin takes it out (frontdoor/pjrt/executable.cc)


def _result_kinds(module: Any) -> list[str]:
    """Of each result of a lowered program; empty where it names none."""
    for operation in module.body.operations:
        attributes = operation.attributes
        if str(attributes["sym_name"]) != '"main"' or "res_attrs" not in attributes:
            continue
        return [
            result["mhlo.memory_kind"].value if "mhlo.memory_kind" in result else ""
            for result in attributes["res_attrs"]
        ]
    return []


def install(is_ours: Callable[[Any], bool]) -> None:
    """Patches JAX, once. `is_ours`: whether a backend of JAX is the plugin's.

    A JAX whose functions are others is left alone: then a program with such a result is refused
    when it is compiled.
    """
    from jax._src import compiler
    from jax._src.interpreters import mlir

    lower = getattr(mlir, "wrap_with_memory_kind", None)
    compile_and_load = getattr(compiler, "backend_compile_and_load", None)
    if lower is None or compile_and_load is None or hasattr(lower, "_gangway"):
        return

    def is_clusters_cpu(backend: Any) -> bool:
        return backend is not None and is_ours(backend) and backend.platform == "cpu"

    def wrap_with_memory_kind(ctx: Any, *arguments: Any) -> Any:
        find = getattr(ctx, "get_backend", None)
        if find is not None and is_clusters_cpu(find(optional=True)):
            return arguments[0]
        return lower(ctx, *arguments)

    def backend_compile_and_load(
        backend: Any, module: Any, devices: Any, options: Any, *rest: Any
    ) -> Any:
        kinds = _result_kinds(module) if is_clusters_cpu(backend) else []
        if any(kind not in ("", "device") for kind in kinds):
            named = (OPTION, ",".join(kinds))
            options.env_option_overrides = [*options.env_option_overrides, named]
        return compile_and_load(backend, module, devices, options, *rest)

    wrap_with_memory_kind._gangway = True  # type: ignore[attr-defined]
    mlir.wrap_with_memory_kind = wrap_with_memory_kind  # type: ignore[assignment]
    compiler.backend_compile_and_load = backend_compile_and_load
