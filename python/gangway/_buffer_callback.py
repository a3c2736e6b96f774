"""`jax.experimental.buffer_callback` on a cluster of CPU devices: a host callback (`_callbacks`)
that gets NumPy arrays and fills those of its results. Their bytes are copied to and from the
cluster.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class _Buffer(np.ndarray):
    """What JAX's own type has, and NumPy's lacks."""

    @property
    def writeable(self) -> bool:
        return self.flags.writeable

    def unsafe_raw_buffer_pointer(self) -> int:
        return self.ctypes.data


def _filled_by(
    callback: Callable[..., Any],
    in_tree: Any,
    out_tree: Any,
    results: Sequence[Any],
    aliases: Sequence[tuple[int, int]],
) -> Callable[..., list[np.ndarray]]:
    """A function of operands that returns results. `aliases`: pairs of an operand and the result
    that begins as it.
    """
    from jax._src import tree_util
    from jax.experimental.buffer_callback import ExecutionStage

    context = types.SimpleNamespace(stage=ExecutionStage.EXECUTE)

    def call(*operands: Any) -> list[np.ndarray]:
        outs = [np.zeros(aval.shape, aval.dtype) for aval in results]
        for operand, result in aliases:
            outs[result][...] = operands[operand]
        ins = [np.asarray(operand).view(_Buffer) for operand in operands]
        args, kwargs = tree_util.tree_unflatten(in_tree, ins)
        out = tree_util.tree_unflatten(out_tree, [array.view(_Buffer) for array in outs])
        if callback(context, out, *args, **kwargs) is not None:
            raise ValueError("buffer_callback callback must not return any values.")
        return outs

    call.is_exact = True  # type: ignore[attr-defined]
    return call


def install(is_cluster: Callable[[Any], bool]) -> None:
    """Lowers buffer callbacks so in programs of the backend that `is_cluster` tells from others."""
    try:
        from jax._src import buffer_callback as jax_buffer_callback
    except ImportError:
        return  # an older or a newer JAX
    from jax._src import callback as jax_callback
    from jax._src.interpreters import mlir

    original = jax_buffer_callback._buffer_callback_lowering

    def lower(ctx: Any, *args: Any, **options: Any) -> Any:
        module = ctx.module_context
        if len(module.platforms) > 1 or not is_cluster(module.get_backend()):
            return original(ctx, *args, **options)
        if module.platforms[0] != "cpu":
            raise NotImplementedError(
                "jax.experimental.buffer_callback needs the device's memory, which is in another "
                "process: use jax.pure_callback or jax.experimental.io_callback"
            )
        results, _, keep = jax_callback.emit_python_callback(
            ctx,
            _filled_by(
                options["callback"],
                options["in_tree"],
                options["out_tree"],
                ctx.avals_out,
                options["input_output_aliases"],
            ),
            None,
            list(args),
            ctx.avals_in,
            ctx.avals_out,
            has_side_effect=options["has_side_effect"],
        )
        module.add_keepalive(keep)
        return results

    mlir.register_lowering(jax_buffer_callback.buffer_callback_p, lower)
