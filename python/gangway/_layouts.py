"""Layouts that a script asks for: `Format` in `device_put`, `in_shardings` and `out_shardings`.

Arrays of the cluster are row-major. JAX writes other layouts into the program, as attributes of its
parameters and results, which the devices' runtime would follow. Through the plugin, another order
of dimensions is a label of the array (frontdoor/pjrt/layout.h): an option names the orders, and the
plugin hides the attributes from the runtime. Tiles stay, and are refused with the program.

Through the IFRT door another order is refused, and `Layout.AUTO` becomes the default.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

LISTS = ("arg_attrs", "res_attrs")
ATTRIBUTE = "mhlo.layout_mode"
OPTION = "gangway_layouts"
# XLA's text, minor to major; elements of less than a byte have their size in bits behind it.
ORDER = re.compile(r"\{([\d,]*)(?::E\(\d\))?\}|auto|default")
_plugins: dict[str, bool] = {}  # by name of a backend of the cluster: whether it is the plugin's


def _modes(attributes: Iterable[Any]) -> list[str]:
    """The layouts of all parameters, or results."""
    from jaxlib.mlir import ir

    dicts = map(ir.DictAttr, attributes)
    return [ir.StringAttr(d[ATTRIBUTE]).value if ATTRIBUTE in d else "default" for d in dicts]


def _option(main: Any) -> str | None:
    """None: all are the default, or one has tiles."""
    lists = [_modes(main[name]) if name in main else [] for name in LISTS]
    if all(mode == "default" for modes in lists for mode in modes):
        return None
    orders = [[ORDER.fullmatch(mode) for mode in modes] for modes in lists]
    if not all(order for each in orders for order in each):
        return None
    return "|".join(";".join(order[1] or "" for order in each if order) for each in orders)


def _without_auto(attributes: Any) -> Any:
    from jaxlib.mlir import ir

    default = ir.StringAttr.get("default")
    kept: list[Any] = []
    for one, mode in zip(attributes, _modes(attributes), strict=True):
        if mode == "auto":
            named: Any = ir.DictAttr(one)
            one = ir.DictAttr.get({each.name: each.attr for each in named} | {ATTRIBUTE: default})
        kept.append(one)
    return ir.ArrayAttr.get(kept)


def _compile(original: Callable[..., Any]) -> Callable[..., Any]:
    """JAX's backend_compile_and_load. It leaves the program as it was: JAX may compile it again."""

    @functools.wraps(original)
    def compile_and_load(
        backend: Any, module: Any, devices: Any, options: Any, *arguments: Any, **more: Any
    ) -> Any:
        from jax._src import xla_bridge
        from jaxlib.mlir import ir

        names = [name for name in _plugins if backend is xla_bridge._backends.get(name)]
        if not names:
            return original(backend, module, devices, options, *arguments, **more)
        with module.context:
            main = ir.SymbolTable(module.operation)["main"].attributes
            if _plugins[names[0]]:
                if (text := _option(main)) is not None:
                    options.env_option_overrides = [*options.env_option_overrides, (OPTION, text)]
                return original(backend, module, devices, options, *arguments, **more)
            before = {name: main[name] for name in LISTS if name in main}
            try:
                for name, attributes in before.items():
                    main[name] = _without_auto(attributes)
                return original(backend, module, devices, options, *arguments, **more)
            finally:
                for name, attributes in before.items():
                    main[name] = attributes

    return compile_and_load


def install(name: str, *, is_plugin: bool) -> None:
    """For programs that JAX compiles for the backend `name`."""
    from jax._src import compiler

    if not _plugins:
        compiler.backend_compile_and_load = _compile(compiler.backend_compile_and_load)
    _plugins[name] = is_plugin
