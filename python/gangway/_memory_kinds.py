"""Memory kinds such as `pinned_host` inside compiled programs, on a cluster of CPU devices.

JAX marks a value that is to be in another kind of memory with a custom call, and a program's result
with an attribute. XLA's CPU runtime knows neither. On CPU devices every kind is the host's memory,
so that there is nothing to move: programs for the plugin are compiled without the custom call, and
the plugin is told the kinds of the results. Local CPU devices and other platforms are left as they
are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

MARKER = '"annotate_device_placement"'
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


def _without_markers(module: Any) -> None:
    """Removes the custom calls, whose results are their operands, from a lowered program."""
    from jaxlib.mlir import ir

    markers = []

    def note(operation: Any) -> Any:
        attributes = operation.attributes
        if "call_target_name" in attributes and str(attributes["call_target_name"]) == MARKER:
            markers.append(operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(note)
    for marker in markers:
        marker.results[0].replace_all_uses_with(marker.operands[0])
        marker.erase()


def install(is_ours: Callable[[Any], bool]) -> None:
    """Patches JAX, once. `is_ours`: whether a backend of JAX is the plugin's.

    A JAX without this function is left alone: then a program with such a result is refused when it
    is compiled.
    """
    from jax._src import compiler

    compile_and_load = getattr(compiler, "backend_compile_and_load", None)
    if compile_and_load is None or hasattr(compile_and_load, "_gangway"):
        return

    def backend_compile_and_load(
        backend: Any, module: Any, devices: Any, options: Any, *rest: Any
    ) -> Any:
        if is_ours(backend) and backend.platform == "cpu":
            _without_markers(module)
            kinds = _result_kinds(module)
            if any(kind not in ("", "device") for kind in kinds):
                named = (OPTION, ",".join(kinds))
                options.env_option_overrides = [*options.env_option_overrides, named]
        return compile_and_load(backend, module, devices, options, *rest)

    backend_compile_and_load._gangway = True  # type: ignore[attr-defined]
    compiler.backend_compile_and_load = backend_compile_and_load
