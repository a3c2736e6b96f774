"""Layouts that programs leave to the compiler: `Format(Layout.AUTO)`.

Arrays of the cluster are row-major, so that is what the compiler may choose. JAX writes the choice
into the program as an attribute of the parameter or the result, which the devices' runtime reads.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

ATTRIBUTE = "mhlo.layout_mode"
_backends: set[str] = set()  # names of the cluster's


def _resolved(attributes: Any) -> Any:
    """The attributes of all parameters, or results, with the default in place of AUTO."""
    from jaxlib.mlir import ir

    def of_one(one: Any) -> Any:
        if ATTRIBUTE not in one or ir.StringAttr(one[ATTRIBUTE]).value != "auto":
            return one
        default = ir.StringAttr.get("default")
        return ir.DictAttr.get({**{each.name: each.attr for each in one}, ATTRIBUTE: default})

    return ir.ArrayAttr.get([of_one(ir.DictAttr(one)) for one in attributes])


def _compile(original: Callable[..., Any]) -> Callable[..., Any]:
    """JAX's backend_compile_and_load. It leaves the program as it was: JAX may compile it again."""

    @functools.wraps(original)
    def compile_and_load(backend: Any, module: Any, *arguments: Any, **options: Any) -> Any:
        from jax._src import xla_bridge
        from jaxlib.mlir import ir

        if not any(backend is xla_bridge._backends.get(name) for name in _backends):
            return original(backend, module, *arguments, **options)
        with module.context:
            main = ir.SymbolTable(module.operation)["main"].attributes
            before = {name: main[name] for name in ("arg_attrs", "res_attrs") if name in main}
            try:
                for name, attributes in before.items():
                    main[name] = _resolved(attributes)
                return original(backend, module, *arguments, **options)
            finally:
                for name, attributes in before.items():
                    main[name] = attributes

    return compile_and_load


def install(name: str) -> None:
    """For programs that JAX compiles for the backend `name`."""
    from jax._src import compiler

    if not _backends:
        compiler.backend_compile_and_load = _compile(compiler.backend_compile_and_load)
    _backends.add(name)
