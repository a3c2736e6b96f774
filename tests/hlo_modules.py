"""Writes the modules of gangway/compiler/check/testdata: `python tests/hlo_modules.py`, with JAX and the CPU plugin.

XLA's converter in the plugin makes them of functions of JAX that use every opcode that its lowerings give. XLA dumps
them, and they are kept without what the check reads past: names of source lines and stack frames.
"""

import functools
import gzip
import os
import pathlib
import struct
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
DUMPED = tempfile.TemporaryDirectory()
os.environ["JAX_PLATFORMS"] = "dumping"
os.environ["XLA_FLAGS"] = (
    f"--xla_dump_to={DUMPED.name} --xla_dump_hlo_as_proto --xla_dump_hlo_pass_re=^$"
)

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import jax.scipy as jsp  # noqa: E402
import numpy as np  # noqa: E402
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # noqa: E402
from jax import lax  # noqa: E402
from jax._src import xla_bridge  # noqa: E402
from jax.experimental import io_callback  # noqa: E402
from jax.experimental.layout import Format, Layout  # noqa: E402
from jax.sharding import Mesh, NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

PLUGIN = ROOT / ".deps/xla_cpu/pjrt_c_api_cpu_plugin.so"
xla_bridge.register_plugin("dumping", library_path=str(PLUGIN), options={"cpu_device_count": 8})
CASES: dict[str, tuple] = {}


def add(name, function, *arguments):
    CASES[name] = (function, arguments)


x = jnp.arange(24, dtype=jnp.float32).reshape(4, 6)
v = jnp.arange(8, dtype=jnp.float32)
i = jnp.arange(8, dtype=jnp.int32)
m = jnp.eye(5, dtype=jnp.float32) + 1
key = jax.random.key(0)
for n in [
    "abs",
    "exp",
    "expm1",
    "log",
    "log1p",
    "sqrt",
    "lax.rsqrt",
    "sin",
    "cos",
    "tan",
    "tanh",
    "sinh",
    "cosh",
    "arcsin",
    "arccos",
    "arctan",
    "arcsinh",
    "arccosh",
    "arctanh",
    "floor",
    "ceil",
    "round",
    "sign",
    "negative",
    "lax.erf",
    "lax.erfc",
    "lax.erf_inv",
    "lax.lgamma",
    "lax.digamma",
    "lax.logistic",
    "lax.cbrt",
    "isfinite",
    "isnan",
    "lax.bessel_i1e",
    "square",
    "reciprocal",
]:
    f = getattr(lax, n[4:]) if n.startswith("lax.") else getattr(jnp, n)
    add("u_" + n, f, v)
for n in [
    "add",
    "subtract",
    "multiply",
    "divide",
    "maximum",
    "minimum",
    "power",
    "arctan2",
    "mod",
    "fmod",
    "floor_divide",
    "logaddexp",
    "hypot",
    "equal",
    "less",
    "less_equal",
    "greater",
    "not_equal",
    "copysign",
    "nextafter",
    "heaviside",
]:
    add("b_" + n, getattr(jnp, n), v, v + 1)
for n in [
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "left_shift",
    "right_shift",
    "add",
    "multiply",
    "floor_divide",
    "remainder",
    "maximum",
]:
    add("bi_" + n, getattr(jnp, n), i, i + 1)
add("popcnt", lax.population_count, i)
add("clz", lax.clz, i)
add("not", jnp.invert, i)
for n in [
    "sum",
    "prod",
    "max",
    "min",
    "argmax",
    "argmin",
    "mean",
    "var",
    "std",
    "any",
    "all",
    "cumsum",
    "cumprod",
    "cumlogsumexp",
    "cummax",
    "median",
    "ptp",
    "nanmean",
]:
    f = getattr(jnp, n) if hasattr(jnp, n) else getattr(lax, n)
    add("r_" + n, f, x if n not in ("cummax", "cumlogsumexp") else v)
    if n not in ("cummax", "cumlogsumexp"):
        add("r1_" + n, functools.partial(f, axis=1), x)
for n in ["sort", "argsort", "unique"]:
    kw = dict(size=8) if n == "unique" else {}
    for t in (
        jnp.float32,
        jnp.int32,
        jnp.bfloat16,
        jnp.uint8,
        jnp.bool_,
        jnp.complex64,
        jnp.float16,
        jnp.int8,
    ):
        add(f"s_{n}_{np.dtype(t).name}", functools.partial(getattr(jnp, n), **kw), v.astype(t))
add("s_desc", functools.partial(jnp.sort, descending=True), v)
add("s_argdesc", functools.partial(jnp.argsort, descending=True), x)
add("s_axis0", functools.partial(jnp.sort, axis=0), x)
add("s_unstable", functools.partial(jnp.sort, stable=False), x)
add("s_lex", lambda a, b: jnp.lexsort((a, b)), v, i)
add("s_keys2", lambda a, b: lax.sort((a, b), num_keys=2), v, i)
add("s_keys3", lambda a, b, c: lax.sort((a, b, c), num_keys=3), v, i, v.astype(jnp.bfloat16))
add("s_keys2of3", lambda a, b, c: lax.sort((a, b, c), num_keys=2), v.astype(jnp.complex64), i, v)
add("topk", lambda a: lax.top_k(a, 3), x)
add("amax", lambda a: lax.approx_max_k(a, 3), x)
add("amin", lambda a: lax.approx_min_k(a, 3), x)
add("perm", lambda k: jax.random.permutation(k, 10), key)
add("choice", lambda k: jax.random.choice(k, 10, (3,), replace=False), key)
for n in [
    "normal",
    "uniform",
    "bernoulli",
    "gamma",
    "beta",
    "categorical",
    "gumbel",
    "laplace",
    "poisson",
    "truncated_normal",
    "randint",
    "dirichlet",
    "exponential",
]:
    f = getattr(jax.random, n)
    a = {
        "gamma": (2.0,),
        "beta": (1.0, 2.0),
        "categorical": (v,),
        "poisson": (3.0,),
        "truncated_normal": (-1.0, 1.0),
        "dirichlet": (v + 1,),
    }.get(n, ())
    if n == "randint":
        add("rnd_" + n, lambda k: jax.random.randint(k, (4,), 0, 9), key)
    else:
        add("rnd_" + n, lambda k, f=f, a=a: f(k, *a), key)
add("rbg", lambda k: jax.random.normal(k, (4,)), jax.random.key(0, impl="rbg"))
add("unsafe_rbg", lambda k: jax.random.split(k, 3), jax.random.key(0, impl="unsafe_rbg"))
add("rng_uniform", lambda a: lax.rng_uniform(a, a + 1, (3,)), jnp.float32(0))
add(
    "rng_bits", lambda k: lax.rng_bit_generator(k, (4,), dtype=jnp.uint32), jnp.zeros(4, jnp.uint32)
)
add("dot", jnp.dot, x, x.T)
add("einsum", lambda a, b: jnp.einsum("bij,bjk->bik", a, b), x.reshape(2, 3, 4), x.reshape(2, 4, 3))
add("vdot", jnp.vdot, v, v)
add("tensordot", lambda a: jnp.tensordot(a, a, axes=2), x)
add(
    "dotprec",
    lambda a, b: lax.dot(a, b, precision="highest", preferred_element_type=jnp.float32),
    x.astype(jnp.bfloat16),
    x.T.astype(jnp.bfloat16),
)
add(
    "doti8",
    lambda a, b: lax.dot(a, b, preferred_element_type=jnp.int32),
    x.astype(jnp.int8),
    x.T.astype(jnp.int8),
)
add(
    "ragged_dot",
    lambda a, b, g: lax.ragged_dot(a, b, g),
    jnp.ones((8, 4)),
    jnp.ones((2, 4, 3)),
    jnp.array([3, 5], jnp.int32),
)
img = jnp.ones((2, 8, 8, 3))
ker = jnp.ones((3, 3, 3, 4))
dn = ("NHWC", "HWIO", "NHWC")
add(
    "conv",
    lambda a, k: lax.conv_general_dilated(a, k, (1, 1), "SAME", dimension_numbers=dn),
    img,
    ker,
)
add(
    "conv_st",
    lambda a, k: lax.conv_general_dilated(
        a,
        k,
        (2, 2),
        [(0, 0), (1, 2)],
        lhs_dilation=(2, 1),
        rhs_dilation=(1, 2),
        dimension_numbers=dn,
    ),
    img,
    ker,
)
add(
    "conv_grp",
    lambda a, k: lax.conv_general_dilated(
        a, k, (1, 1), "SAME", dimension_numbers=dn, feature_group_count=3
    ),
    img,
    jnp.ones((3, 3, 1, 6)),
)
add(
    "conv_bgrp",
    lambda a, k: lax.conv_general_dilated(
        a, k, (1, 1), "SAME", dimension_numbers=dn, batch_group_count=2
    ),
    img,
    jnp.ones((3, 3, 3, 4)),
)
add(
    "conv_grad",
    jax.grad(
        lambda k, a: lax.conv_general_dilated(a, k, (2, 2), "SAME", dimension_numbers=dn).sum()
    ),
    ker,
    img,
)
add(
    "conv_gradi",
    jax.grad(
        lambda a, k: lax.conv_general_dilated(a, k, (2, 2), "SAME", dimension_numbers=dn).sum()
    ),
    img,
    ker,
)
add(
    "conv_grpgrad",
    jax.grad(
        lambda k, a: lax.conv_general_dilated(
            a, k, (1, 1), "SAME", dimension_numbers=dn, feature_group_count=3
        ).sum()
    ),
    jnp.ones((3, 3, 1, 6)),
    img,
)
add("conv_T", lambda a, k: lax.conv_transpose(a, k, (2, 2), "SAME"), img, jnp.ones((3, 3, 3, 4)))
add("convolve", jnp.convolve, v, v[:3])
add("conv1", lambda a, k: lax.conv(a, k, (1,), "SAME"), jnp.ones((1, 2, 9)), jnp.ones((3, 2, 3)))
add(
    "maxpool",
    lambda a: lax.reduce_window(a, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"),
    img,
)
add(
    "avgpool", lambda a: lax.reduce_window(a, 0.0, lax.add, (1, 3, 3, 1), (1, 2, 2, 1), "SAME"), img
)
add(
    "maxpool_grad",
    jax.grad(
        lambda a: lax.reduce_window(a, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID").sum()
    ),
    img,
)
add(
    "avgpool_grad",
    jax.grad(
        lambda a: lax.reduce_window(a, 0.0, lax.add, (1, 3, 3, 1), (1, 2, 2, 1), "SAME").sum()
    ),
    img,
)
add(
    "rw_dil",
    lambda a: lax.reduce_window(
        a, 0.0, lax.add, (3,), (2,), ((1, 2),), base_dilation=(2,), window_dilation=(2,)
    ),
    v,
)
add(
    "rw_multi",
    lambda a, b: lax.reduce_window(
        (a, b), (0.0, 0), lambda p, q: (p[0] + q[0], p[1] + q[1]), (3,), (1,), ((1, 1),)
    ),
    v,
    i,
)
add(
    "reduce_multi",
    lambda a, b: lax.reduce(
        (a, b), (-jnp.inf, 0), lambda p, q: (lax.max(p[0], q[0]), lax.max(p[1], q[1])), (0,)
    ),
    v,
    i,
)
add("reduce_prec", lambda a: lax.reduce_precision(a, 5, 10), v)
add("gather", lambda a, j: a[j], x, jnp.array([0, 2]))
add("gather2", lambda a, j: a[j, j], x, jnp.array([0, 2]))
add("gather3", lambda a, j: a[:, j, None], x, jnp.array([[0, 2]]))
add("take", lambda a, j: jnp.take(a, j, axis=1, mode="clip"), x, i)
add("talong", lambda a, j: jnp.take_along_axis(a, j, 1), x, jnp.zeros((4, 2), jnp.int32))
add("vgather", jax.vmap(lambda a, j: a[j]), x, jnp.zeros((4,), jnp.int32))
add("vds", jax.vmap(lambda a, j: lax.dynamic_slice(a, (j,), (3,))), x, jnp.zeros((4,), jnp.int32))
for n in ["set", "add", "mul", "min", "max"]:
    add("sc_" + n, lambda a, j, n=n: getattr(a.at[j], n)(1.0), x, jnp.array([0, 2]))
add("sc_grad", jax.grad(lambda a, j: (a[j] ** 2).sum()), x, jnp.array([0, 2]))
add("vscatter", jax.vmap(lambda a, j: a.at[j].set(2.0)), x, jnp.zeros((4,), jnp.int32))
add("sc_apply", lambda a, j: a.at[j].apply(jnp.sin), x, jnp.array([1]))
add("segsum", lambda a, j: jax.ops.segment_sum(a, j, 4), v, i)
add("bincount", lambda j: jnp.bincount(j, length=9), i)
add("hist", lambda a: jnp.histogram(a, 4), v)
add("ds", lambda a, j: lax.dynamic_slice(a, (j, 0), (2, 3)), x, 1)
add("dus", lambda a, j: lax.dynamic_update_slice(a, jnp.ones((2, 3)), (j, 0)), x, 1)
add("slice", lambda a: a[1:4:2, ::-1], x)
add("pad", lambda a: lax.pad(a, 0.0, ((1, 2, 1), (-1, 0, 0))), x)
add("concat", lambda a: jnp.concatenate([a, a], 1), x)
add("stack", lambda a: jnp.stack([a, a]), x)
add("roll", lambda a: jnp.roll(a, 3, 1), x)
add("reshape", lambda a: a.reshape(3, 8), x)
add("transp", lambda a: a.T + 1, x)
add("bcast", lambda a: jnp.broadcast_to(a, (3, 8)), v)
add("iota", lambda: lax.broadcasted_iota(jnp.int32, (3, 4), 1))
add("tile", lambda a: jnp.tile(a, (2, 3)), x)
add("rep", lambda a: jnp.repeat(a, 3), v)
add("tril", jnp.tril, x)
add("where", lambda a: jnp.where(a > 3, a, 0), x)
add("clip", lambda a: jnp.clip(a, 1, 3), x)
add("select_n", lambda w, a: lax.select_n(w, a, a, a), jnp.int32(1), v)
add("clampv", lambda a: lax.clamp(v * 0, a, v), v)
add("nonzero", lambda a: jnp.nonzero(a, size=5), x)
add("ssorted", lambda a: jnp.searchsorted(a, 3.0), v)
add("ssorted2", lambda a: jnp.searchsorted(a, a, method="sort"), v)
add("diag", jnp.diag, v)
add("cross", jnp.cross, x[:3, :3], x[:3, :3])
add("kron", jnp.kron, x, x)
add("interp", lambda a: jnp.interp(a, v, v), v)
add("split", lambda a: jnp.split(a, 2), v)
add("gradient", jnp.gradient, v)
add("poly", jnp.polyval, v, v)
add("digitize", jnp.digitize, v, v)
add("percentile", lambda a: jnp.percentile(a, 30), v)
add("cov", jnp.cov, x)
add("setops", lambda a: jnp.union1d(a, a, size=9), i)
add("isin", jnp.isin, i, i)
add(
    "cast",
    lambda a: (
        a.astype(jnp.bfloat16),
        a.astype(jnp.int8),
        a.astype(jnp.float8_e4m3fn),
        a.astype(jnp.int4),
        a.astype(bool),
    ),
    v,
)
add("bitcast", lambda a: lax.bitcast_convert_type(a, jnp.uint8), v)
add("bitcast2", lambda a: lax.bitcast_convert_type(a, jnp.int32), jnp.ones((3, 4), jnp.uint8))
add(
    "cplx",
    lambda a: (jnp.real(a), jnp.imag(a), jnp.conj(a), jnp.abs(a), jnp.angle(a)),
    v.astype(jnp.complex64),
)
add("mkcplx", lambda a: lax.complex(a, a), v)
add("fft", jnp.fft.fft, v)
add("rfft", jnp.fft.rfft, v)
add("irfft", jnp.fft.irfft, v)
add("fft2", jnp.fft.fft2, x)
add("rfft2", jnp.fft.rfft2, x)
add("fftn", jnp.fft.ifftn, x)
add("irfft2", jnp.fft.irfft2, x.astype(jnp.complex64))
for n in [
    "cholesky",
    "qr",
    "svd",
    "eigh",
    "eigvals",
    "inv",
    "det",
    "slogdet",
    "solve",
    "pinv",
    "lstsq",
    "matrix_rank",
    "expm",
    "lu",
]:
    if n == "expm":
        add("la_expm", jsp.linalg.expm, m)
    elif n == "lu":
        add("la_lu", jsp.linalg.lu, m)
    elif n in ("solve", "lstsq"):
        add("la_" + n, getattr(jnp.linalg, n), m, m[:, 0])
    else:
        add("la_" + n, getattr(jnp.linalg, n), m)
add("trisolve", lambda a, b: lax.linalg.triangular_solve(a, b, left_side=True, lower=True), m, m)
add(
    "trisolve_b",
    jax.vmap(lambda a, b: lax.linalg.triangular_solve(a, b)),
    jnp.stack([m, m]),
    jnp.stack([m, m]),
)
add("chol_b", jax.vmap(jnp.linalg.cholesky), jnp.stack([m, m]))
add(
    "while", lambda a: lax.while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 1, c[1] * 2), (0, a)), v
)
add("fori", lambda a, n: lax.fori_loop(0, n, lambda k, c: c + k, a), v, 3)
add("scan", lambda a: lax.scan(lambda c, t: (c + t, c * t), 0.0, a), v)
add("scangrad", jax.grad(lambda a: lax.scan(lambda c, t: (c * t, c * t), 1.0, a)[0]), v)
add("cond", lambda p, a: lax.cond(p, jnp.sin, jnp.cos, a), True, v)
add("switch", lambda k, a: lax.switch(k, [jnp.sin, jnp.cos, jnp.tan], a), 1, v)
add("assoc", lambda a: lax.associative_scan(jnp.add, a), v)
add("map", lambda a: lax.map(jnp.sin, a), v)
add("remat", jax.grad(lambda a: jax.checkpoint(lambda b: jnp.sin(jnp.sin(b)).sum())(a)), v)
add("barrier", lambda a: lax.optimization_barrier((a, a + 1)), v)
add(
    "nested",
    lambda a: lax.scan(lambda c, t: (lax.fori_loop(0, 3, lambda k, z: z + t, c), c), 0.0, a),
    v,
)
add("vwhile", jax.vmap(lambda a: lax.while_loop(lambda c: c < 5, lambda c: c + 1, a)), v)
add("vcond", jax.vmap(lambda p, a: lax.cond(p, jnp.sin, jnp.cos, a)), v > 2, v)
add("softmax", jax.nn.softmax, x)
add("gelu", jax.nn.gelu, x)
add("onehot", lambda j: jax.nn.one_hot(j, 4), i)
add("lse", jax.nn.logsumexp, x)
add("attn", lambda q: jax.nn.dot_product_attention(q, q, q), jnp.ones((2, 4, 2, 8)))
add("hess", jax.hessian(lambda a: (a**3).sum()), v)
add("jacf", jax.jacfwd(jnp.sin), v)
add("vjp", lambda a: jax.vjp(jnp.sin, a)[1](a), v)
add("map_coord", lambda a: jsp.ndimage.map_coordinates(a, [a, a], order=1), x)
add("resize", lambda a: jax.image.resize(a, (2, 16, 16, 3), "bilinear"), img)
add("convsp", lambda a: jsp.signal.convolve2d(a, a), x)
add("callback", lambda a: jax.pure_callback(np.sin, jax.ShapeDtypeStruct(a.shape, a.dtype), a), v)
add("dbg", lambda a: (jax.debug.print("{}", a), a)[1], v)
add("io", lambda a: io_callback(np.sin, jax.ShapeDtypeStruct(a.shape, a.dtype), a, ordered=True), v)
add("empty", lambda a: a.sum(), jnp.zeros((0, 3)))
add("scalars", lambda a, b: a + b, 1.0, 2)
add("tokenless", lambda: jnp.float32(3))
add("bigconst", lambda a: a + np.arange(1000, dtype=np.float32), jnp.zeros(1000))
add(
    "consts",
    lambda: tuple(
        jnp.asarray(np.arange(3), dtype=t)
        for t in (
            "bool",
            "int8",
            "uint16",
            "int32",
            "uint32",
            "float16",
            "bfloat16",
            "complex64",
            "int4",
            "float8_e5m2",
        )
    ),
)
add("donate", jax.jit(lambda a: a + 1, donate_argnums=0), jnp.ones(7))
mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("a", "b"))
sh = NamedSharding(mesh, P("a", "b"))
X = jax.ShapeDtypeStruct((8, 8), jnp.float32, sharding=sh)
add("sp_mm", lambda a: a @ a.T, X)
add("sp_sum", lambda a: a.sum(), X)
add("sp_wsc", lambda a: lax.with_sharding_constraint(a * 2, NamedSharding(mesh, P("b"))), X)
TILED = P("a", "b")


def smap(f, i=TILED, o=TILED):
    return jax.shard_map(f, mesh=mesh, in_specs=i, out_specs=o, check_vma=False)


add("sm_psum", smap(lambda a: lax.psum(a, "a")), X)
add("sm_psum2", smap(lambda a: lax.psum(a, ("a", "b"))), X)
add("sm_ag", smap(lambda a: lax.all_gather(a, "a", tiled=True), o=P(None, "b")), X)
add("sm_ag0", smap(lambda a: lax.all_gather(a, "a"), o=P(None, None, "b")), X)
add("sm_a2a", smap(lambda a: lax.all_to_all(a, "b", 1, 0, tiled=True)), X)
add("sm_a2a0", smap(lambda a: lax.all_to_all(a, "b", 0, 0)), X)
add("sm_pp", smap(lambda a: lax.ppermute(a, "a", [(k, (k + 1) % 4) for k in range(4)])), X)
add("sm_rs", smap(lambda a: lax.psum_scatter(a, "b", scatter_dimension=1, tiled=True)), X)
add("sm_idx", smap(lambda a: a + lax.axis_index("a")), X)
add("sm_pmax", smap(lambda a: lax.pmax(a, "b")), X)
add(
    "sm_train",
    jax.grad(
        lambda w, a: smap(
            lambda w, a: lax.pmean((jnp.tanh(a @ w)).sum()[None, None], ("a", "b")),
            i=(P(), P("a", "b")),
        )(w, a).sum()
    ),
    jnp.ones((4, 3)),
    X,
)
add(
    "pmap_like",
    jax.shard_map(
        lambda a: lax.psum(a, "a"), mesh=mesh, in_specs=P("a"), out_specs=P(), axis_names={"a"}
    ),
    X,
)
order = Format(Layout((0, 1)), jax.sharding.SingleDeviceSharding(jax.devices()[0]))
add("layout", jax.jit(lambda a: a * 2, in_shardings=order, out_shardings=order), x)


def step(p, a):
    def loss(p):
        h = a
        for w in p:
            h = jax.nn.gelu(h @ w)
        return (h**2).mean()

    value, g = jax.value_and_grad(loss)(p)
    return value, jax.tree.map(lambda w, d: w - 0.1 * d, p, g)


add("train", step, [jnp.ones((6, 16)), jnp.ones((16, 6))], x)


def module_class():
    """gangway.xla.hlo.Module, compiled from our proto."""
    out = pathlib.Path(DUMPED.name) / "descriptors.bin"
    name = "gangway/xla/hlo_program.proto"
    subprocess.run(["protoc", f"-I{ROOT}", f"--descriptor_set_out={out}", name], check=True)
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("gangway.xla.hlo.Module"))


def module_in(program: bytes) -> bytes:
    """The module of an HloProto, whose first field it is."""
    size = shift = 0
    at = 1
    while True:
        byte = program[at]
        at += 1
        size |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return program[at : at + size]


def dump_all() -> None:
    for name, (function, arguments) in CASES.items():
        jitted = function if hasattr(function, "lower") else jax.jit(function)
        try:
            jitted.lower(*arguments).compile()
        except jax.errors.JaxRuntimeError as error:
            # The plugin alone has no handlers of LAPACK and host callbacks; it dumps the program before it looks.
            print(f"{name}: {str(error)[:100]}")


def pack() -> bytes:
    module_type = module_class()
    kept = set()
    for path in pathlib.Path(DUMPED.name).glob("*before_optimizations.hlo.pb"):
        module = module_type.FromString(module_in(path.read_bytes()))
        module.ClearField("id")
        module.ClearField("stack_frame_index")
        for computation in module.computations:
            for instruction in computation.instructions:
                instruction.ClearField("metadata")
        kept.add(module.SerializeToString(deterministic=True))
    everything = b"".join(struct.pack("<I", len(each)) + each for each in sorted(kept))
    print(f"{len(kept)} modules of {len(everything)} bytes")
    return gzip.compress(everything, 9, mtime=0)


if __name__ == "__main__":
    dump_all()
    (ROOT / "gangway/compiler/check/testdata/jax_modules.bin.gz").write_bytes(pack())
