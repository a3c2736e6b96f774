"""Two libraries that say by custom_partitioning how their calls are cut: jaxDecomp's Fourier transforms over a grid of
devices, and flash-attn3-jax. The kernel of the latter is CUDA's, so a function of JAX takes its place here; the rules of
partitioning around it are the library's.
"""

import sys
import types

import jax
import jax.numpy as jnp
import jaxdecomp
import numpy as np
from jax.interpreters import mlir
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

AUTO = jax.sharding.AxisType.Auto
KERNELS = "flash_attn3_jax_lib"
draw = np.random.default_rng(0)
grid = jax.make_mesh((4, 2), ("a", "b"), axis_types=(AUTO, AUTO))


def collectives(function, *operands):
    """Those of the compiled function that move data."""
    text = jax.jit(function).lower(*operands).compile().as_text() or ""
    return {
        name for name in ("all-to-all", "all-gather", "collective-permute") if f"{name}(" in text
    }


# jaxDecomp
cube = draw.normal(size=(16, 8, 8)).astype(np.float32)
field = jax.device_put(cube, NamedSharding(grid, P("a", "b")))
with jax.set_mesh(grid):
    assert collectives(jaxdecomp.transposeXtoY, field) == {"all-to-all"}
    spectrum = jaxdecomp.pfft3d(field.astype(np.complex64))
    back = jaxdecomp.pifft3d(spectrum)
    turned = jaxdecomp.transposeYtoZ(jaxdecomp.transposeXtoY(field))
    padded = jnp.pad(field, ((8, 8), (4, 4), (0, 0)))
    halo = jaxdecomp.halo_exchange(padded, halo_extents=(2, 2), halo_periods=(True, True))
    power = lambda x: (jnp.abs(jaxdecomp.pfft3d(x.astype(np.complex64))) ** 3).mean()  # noqa: E731
    slope = jax.jit(jax.grad(power))(field)
np.testing.assert_allclose(back.real, cube, atol=1e-5)
np.testing.assert_allclose(spectrum, np.fft.fftn(cube).transpose(1, 2, 0), atol=1e-3)

# flash-attn3-jax
kernels = types.ModuleType(f"{KERNELS}.flash_api")
kernels.get_ffi_registrations = dict  # type: ignore[attr-defined]
sys.modules |= {KERNELS: types.ModuleType(KERNELS), kernels.__name__: kernels}
sys.modules[KERNELS].flash_api = kernels  # type: ignore[attr-defined]
from flash_attn3_jax import flash, flash_hlo, flash_mha  # noqa: E402

_shapes: list[tuple[int, ...]] = []  # of what each kernel gets; as many as it was traced


def attend(q, k, v, *, softmax_scale, is_causal, **_):
    _shapes.append(q.shape)
    scores = softmax_scale * jnp.einsum("nshd,nthd->nhst", *(x.astype(np.float32) for x in (q, k)))
    if is_causal:
        scores = jnp.where(jnp.tri(q.shape[1], k.shape[1], dtype=bool), scores, -jnp.inf)
    scale = jax.nn.logsumexp(scores, -1)
    mixed = jnp.einsum("nhst,nthd->nshd", jnp.exp(scores - scale[..., None]), v.astype(np.float32))
    return mixed.astype(q.dtype), scale


def gradient(tangent, q, k, v, *_, **options):
    return jax.vjp(lambda *qkv: attend(*qkv, **options)[0], q, k, v)[1](tangent)


for call, function in (
    (flash_hlo._flash_mha_fwd_hlo_p, attend),
    (flash_hlo._flash_mha_bwd_hlo_p, gradient),
    (flash._flash_mha_fwd_p, flash._flash_mha_fwd_hlo_sharded),
    (flash._flash_mha_bwd_p, flash._flash_mha_bwd_hlo_sharded),
):
    mlir.register_lowering(call, mlir.lower_fun(function), platform="cpu")


def loss(q, k, v):
    return flash_mha(q, k, v, is_causal=True).astype(np.float32).var()


qkv = [draw.normal(size=(8, 16, 4, 8)).astype(jnp.bfloat16) for _ in range(3)]
whole = np.asarray(jax.jit(flash_mha)(*qkv), np.float32)
attention = {}
for name, spec, part, moves in (
    ("heads", P("a", None, "b"), (2, 16, 2, 8), set[str]()),
    ("ring", P(None, "a"), (8, 4, 4, 8), {"collective-permute"}),
):
    placed = jax.device_put(qkv, NamedSharding(grid, spec))
    _shapes.clear()
    mixed = jax.jit(flash_mha)(*placed)
    assert part in _shapes, (part, _shapes)  # each device computes its part
    np.testing.assert_allclose(np.asarray(mixed, np.float32), whole, atol=0.05)
    assert collectives(flash_mha, *placed) == moves, name
    attention[name] = mixed, jax.jit(jax.grad(loss, (0, 1, 2)))(*placed)
