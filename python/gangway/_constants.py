"""Large arrays that a jitted function closes over: they travel as arguments, not in the program.

JAX writes such an array into the program as a constant, which the compiler, its cache and every
worker then hold in several copies. JAX has another way, behind a flag: it passes them as hidden
arguments ahead of the others. This module turns that on while JAX lowers a program for a cluster
that has a large constant; traces, and JAX's flags, stay as they are. Such an array is uploaded once
for each compiled function, and lives as long as that.

JAX's functions for this are private: where they are unknown, or refuse a program, its constants
stay inside. Thread-safe, as JAX is.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.abc
import importlib.util
import inspect
import logging
import os
import sys
import threading
import weakref
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import numpy as np

from gangway import _callbacks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

INSIDE_BYTES_MAX = 1 << 20  # of a constant that stays in its program; or GANGWAY_CONSTANT_BYTES
BACKENDS = ("gangway", "proxy")

_logger = logging.getLogger(__name__)
_installing = threading.Lock()


class _Hoisting(threading.local):
    """Whether this thread lowers a program whose large constants become hidden arguments."""

    active = False


class _HiddenArguments(list[Any]):
    """Of one program: the arrays that its function closes over; from its first run on, those that
    were uploaded.
    """

    def __init__(self, arrays: Iterable[Any]):
        super().__init__(arrays)
        self._closed_over = list(self)

    def forget_uploads(self) -> None:
        self[:] = self._closed_over


_hoisting = _Hoisting()
_programs: weakref.WeakValueDictionary[int, _HiddenArguments] = weakref.WeakValueDictionary()


def _array_bytes(value: Any) -> int:
    """Of a constant that can be an argument; else 0."""
    import jax

    if isinstance(value, jax.Array):
        if value.is_deleted() or not isinstance(value.dtype, np.dtype):  # such as that of keys
            return 0
    elif not isinstance(value, np.ndarray):
        return 0
    return int(value.nbytes)


def _inside_bytes_max() -> int:
    text = os.environ.get("GANGWAY_CONSTANT_BYTES", str(INSIDE_BYTES_MAX))
    if not text.isdecimal():
        raise ValueError(f"GANGWAY_CONSTANT_BYTES={text!r} is not a number of bytes")
    return int(text)


class _Rewriter:
    """Makes literals of large constants, the form in which JAX can pass them as arguments."""

    def __init__(self, inside_bytes_max: int):
        from jax._src import core

        self._inside_bytes_max = inside_bytes_max
        self._kinds = {core.Jaxpr, getattr(core, "ClosedJaxpr", core.Jaxpr)}
        self._client: Any = None
        self._found: dict[int, bool] = {}
        self._rewritten: dict[int, Any] = {}

    def finds_any(self, jaxpr: Any) -> bool:
        """Whether `jaxpr`, or what it calls, has a large constant. Quick, as most have none."""
        if id(jaxpr) not in self._found:
            self._found[id(jaxpr)] = any(map(self._is_large, getattr(jaxpr, "consts", ()))) or any(
                self.finds_any(called)
                for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns
                for called in self._calls(equation)
            )
        return self._found[id(jaxpr)]

    def _calls(self, equation: Any) -> Iterable[Any]:
        for value in equation.params.values():
            if type(value) in self._kinds:
                yield value
            elif type(value) is tuple:
                yield from (part for part in value if type(part) in self._kinds)

    def _is_large(self, value: Any) -> bool:
        return _array_bytes(value) > self._inside_bytes_max

    def rewrite(self, jaxpr: Any, client: Any) -> Any:
        """`jaxpr`, open or closed, with what it calls, for devices of `client`; the same object if
        nothing is large.
        """
        self._client = client
        return self._once(jaxpr)

    def _once(self, jaxpr: Any) -> Any:
        if id(jaxpr) not in self._rewritten:
            self._rewritten[id(jaxpr)] = self._rewrite(jaxpr)
        return self._rewritten[id(jaxpr)]

    def _rewrite(self, jaxpr: Any) -> Any:
        from jax._src import core, effects

        body = getattr(jaxpr, "jaxpr", jaxpr)
        closed = hasattr(jaxpr, "consts")
        if any(isinstance(effect, effects.JaxprInputEffect) for effect in body.effects):
            return jaxpr  # its effects may name inputs by their places
        constants = list(zip(body.constvars, jaxpr.consts, strict=True)) if closed else []
        large = {
            var: core.Literal(self._reachable(value), var.aval)  # type: ignore[no-untyped-call]
            for var, value in constants
            if self._is_large(value)
        }

        def read(atom: Any) -> Any:
            return atom if isinstance(atom, core.Literal) else large.get(atom, atom)

        equations = []
        for equation in body.eqns:
            params = {name: self._parameter(value) for name, value in equation.params.items()}
            invars = [read(atom) for atom in equation.invars]
            if _differ(params.values(), equation.params.values()) or _differ(
                invars, equation.invars
            ):
                equation = equation.replace(invars=invars, params=params)
            equations.append(equation)
        if not large and not _differ(equations, body.eqns):
            return jaxpr
        kept = [(var, value) for var, value in constants if var not in large]
        body = body.replace(
            constvars=[var for var, _ in kept] if closed else body.constvars,
            eqns=equations,
            outvars=[read(atom) for atom in body.outvars],
            debug_info=body.debug_info,
        )
        return type(jaxpr)(body, [value for _, value in kept]) if closed else body

    def _reachable(self, value: Any) -> Any:
        """`value`, or its copy if it is on devices of another client."""
        import jax

        if not isinstance(value, jax.Array):
            return value
        device: Any = next(iter(value.sharding.device_set))
        return value if device.client is self._client else np.asarray(value)

    def _parameter(self, value: Any) -> Any:
        if type(value) is tuple:
            parts = tuple(self._parameter(part) for part in value)
            return parts if _differ(parts, value) else value
        return self._once(value) if type(value) in self._kinds else value


def _differ(these: Iterable[Any], those: Iterable[Any]) -> bool:
    return any(a is not b for a, b in zip(these, those, strict=True))


def _client(arguments: dict[str, Any]) -> Any:
    """The client whose devices a program is lowered for, as its shardings and contexts say."""
    import jax
    from jax._src import xla_bridge

    mesh = arguments["context_mesh"]
    if not mesh.empty and hasattr(mesh, "devices"):
        return mesh.devices.flat[0].client
    for sharding in (*arguments["in_shardings"], *arguments["out_shardings"]):
        devices = getattr(sharding, "_internal_device_list", None)
        if devices:
            return devices[0].client
    default: Any = jax.config.jax_default_device  # type: ignore[attr-defined]
    if hasattr(default, "client"):
        return default.client
    return xla_bridge.get_backend(default)


class _Lower:
    """JAX's lower_sharding_computation."""

    def __init__(self, original: Callable[..., Any]):
        self._original = original
        self._signature = inspect.signature(original)
        self._inside_bytes_max = _inside_bytes_max()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            hoisting = self._hoisting(self._signature.bind(*args, **kwargs).arguments)
            computation = hoisting and self._lower(hoisting)
        except Exception:  # JAX says in its own way what is wrong with a program
            _logger.debug("large constants stay in their program", exc_info=True)
            computation = None
        return computation or self._original(*args, **kwargs)

    def _hoisting(self, arguments: dict[str, Any]) -> dict[str, Any] | None:
        """The arguments for a program without its large constants; None if they stay."""
        from jax._src import xla_bridge

        parameters = arguments["lowering_parameters"]
        if arguments["lowering_platforms"] is not None or parameters.for_export:
            return None
        rewriter = _Rewriter(self._inside_bytes_max)
        if not rewriter.finds_any(arguments["closed_jaxpr"]):
            return None
        client = _client(arguments)  # which may begin the session
        if client not in [xla_bridge._backends.get(name) for name in BACKENDS]:
            return None
        jaxpr = rewriter.rewrite(arguments["closed_jaxpr"], client)
        parameters = dataclasses.replace(parameters, hoist_constants_as_args=True)
        return {**arguments, "closed_jaxpr": jaxpr, "lowering_parameters": parameters}

    def _lower(self, arguments: dict[str, Any]) -> Any:
        from jax._src import config

        _hoisting.active = True
        try:
            with config.use_simplified_jaxpr_constants(True):
                bound = inspect.BoundArguments(self._signature, OrderedDict(arguments))
                computation = self._original(*bound.args, **bound.kwargs)
        finally:
            _hoisting.active = False
        arguments_ahead = _HiddenArguments(computation.const_args)
        computation.const_args = _programs[id(arguments_ahead)] = arguments_ahead
        return computation


def _choose_shardings(original: Callable[..., Any]) -> Callable[..., Any]:
    """JAX's const_args_shardings. As a constant, an array does not say where the program runs, nor
    how its results are sharded.
    """

    from jax._src import sharding_impls

    unspecified: Any = sharding_impls.UNSPECIFIED  # type: ignore[attr-defined]

    @functools.wraps(original)
    def shardings(const_args: Any) -> Any:
        return (unspecified,) * len(const_args) if _hoisting.active else original(const_args)

    return shardings


def _upload(original: Callable[..., Any]) -> Callable[..., Any]:
    """JAX's shard_const_args, which it calls for each signature, and with effects for each run."""

    @functools.wraps(original)
    def shard(self: Any, const_args: Any) -> Any:
        arrays = original(self, const_args)
        if isinstance(const_args, _HiddenArguments):
            const_args[:] = arrays
        return arrays

    return shard


def _upload_again() -> None:
    """A worker was lost, maybe with such arrays, or is back: the next call of each function uploads
    its arrays, except those compiled ahead of time.
    """
    from jax._src import pjit

    for arguments in list(_programs.values()):
        arguments.forget_uploads()
    if _programs:  # the calls that JAX has prepared hold the arrays, too
        pjit._cpp_pjit_cache_fun_only.clear()
        pjit._cpp_pjit_cache_explicit_attributes.clear()


def install() -> None:
    """For the programs of the backends that are a cluster's. JAX is imported.

    Raises:
      ValueError: GANGWAY_CONSTANT_BYTES is not a number.
    """
    from jax._src import pjit, traceback_util
    from jax._src.interpreters import pxla

    executable: Any = pxla.MeshExecutable
    with _installing:
        if isinstance(pxla.lower_sharding_computation, _Lower):
            return
        try:
            lower = _Lower(pxla.lower_sharding_computation)
            shardings = _choose_shardings(pjit.const_args_shardings)
            upload = _upload(executable.shard_const_args)
        except AttributeError:
            _logger.debug("this JAX keeps constants in programs", exc_info=True)
            return
        traceback_util.register_exclusion(__file__)
        _callbacks.when_workers_change.append(_upload_again)
        pxla.lower_sharding_computation = lower
        pjit.const_args_shardings = shardings
        executable.shard_const_args = upload


class _WhenImported(importlib.abc.MetaPathFinder):
    """Finds JAX once, as others would, and installs when it has been imported."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != "jax":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        loader: Any = spec.loader
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            install()

        loader.exec_module = exec_module
        return spec


def install_with_jax() -> None:
    """Installs as soon as JAX is imported: a script's first program may precede its first use of a
    backend.

    Raises:
      ValueError: GANGWAY_CONSTANT_BYTES is not a number.
    """
    _inside_bytes_max()
    if "jax" in sys.modules:
        return install()
    sys.meta_path.insert(0, _WhenImported())
    return None
