"""Array functions over sharded axes: XLA's partitioner chooses the collectives."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from corpus.meshes import fetch, grid, permuted, place, ring, values


def case_convolution_with_halos():
    """Images split along both of their sides: windows reach into the neighbours' parts."""
    mesh = grid(rows=2, columns=4)

    @jax.jit
    @functools.partial(jax.value_and_grad, argnums=(0, 1))
    def f(x, w):
        y = jax.lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        return jnp.square(y).mean()

    return fetch(
        f(
            place(mesh, values(2, 16, 32, 3), None, "rows", "columns"),
            place(mesh, values(3, 3, 3, 4, seed=1)),
        )
    )


def case_strided_and_dilated_convolutions():
    mesh = grid(data=2, side=4)
    convolve = functools.partial(
        jax.lax.conv_general_dilated, dimension_numbers=("NWC", "WIO", "NWC")
    )

    @jax.jit
    def f(x, w):
        return (
            convolve(x, w, (2,), "SAME"),
            convolve(x, w, (1,), "SAME", rhs_dilation=(3,)),
            convolve(x, w, (1,), [(2, 3)], lhs_dilation=(2,)),
        )

    return fetch(
        f(place(mesh, values(4, 32, 6), "data", "side"), place(mesh, values(5, 6, 8, seed=1)))
    )


def case_grouped_convolution_over_channels():
    mesh = grid(data=2, channel=4)

    @jax.jit
    def f(x, w):
        return jax.lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=8
        )

    return fetch(
        f(
            place(mesh, values(2, 8, 8, 16), "data", None, None, "channel"),
            place(mesh, values(3, 3, 2, 16, seed=1)),
        )
    )


def case_pooling():
    mesh = grid(rows=2, columns=4)

    @jax.jit
    def f(x):
        window = functools.partial(
            jax.lax.reduce_window,
            x,
            window_dimensions=(3, 3),
            window_strides=(2, 2),
            padding="SAME",
        )
        return window(-jnp.inf, jax.lax.max), window(0.0, jax.lax.add)

    return fetch(f(place(mesh, values(16, 32), "rows", "columns")))


def case_fft():
    mesh = grid(a=2, b=4)

    @jax.jit
    def f(x):
        return jnp.fft.fft2(x), jnp.fft.rfft(x, axis=0)

    @jax.jit
    def back(z):
        return jnp.real(jnp.fft.ifft2(z * 0.5)), jnp.fft.irfft(z, axis=1)

    results = f(place(mesh, values(16, 32), "a", "b"))
    return fetch((results, back(results[0])))


def case_sorts():
    mesh = grid(a=2, b=4)

    @jax.jit
    def f(x, keys):
        return (
            jnp.sort(x, axis=0),
            jnp.argsort(x, axis=1),
            jax.lax.sort((keys, x), dimension=0, num_keys=2),
            jnp.median(x, axis=0),
            jnp.quantile(x, 0.3, axis=1),
        )

    keys = np.random.default_rng(0).integers(0, 5, (16, 32)).astype(np.int8)
    return fetch(f(place(mesh, values(16, 32), "a", "b"), place(mesh, keys, "a", "b")))


def case_cumulative():
    mesh = grid(a=2, b=4)

    @jax.jit
    def f(x):
        return (
            jnp.cumsum(x, axis=0),
            jnp.cumprod(x, axis=1),
            jax.lax.cummax(x, axis=0),
            jax.lax.cumlogsumexp(x, axis=1, reverse=True),
        )

    return fetch(f(place(mesh, values(16, 32), "a", "b")))


def case_top_k():
    mesh = grid(a=2, b=4)
    f = jax.jit(lambda x: (jax.lax.top_k(x, 5), jax.lax.approx_max_k(x, 3)))
    return fetch(f(place(mesh, values(16, 64), "a", "b")))


def case_argmax_and_argmin():
    mesh = permuted(a=2, b=4)

    @jax.jit
    def f(x, ties):
        return (
            jnp.argmax(x, axis=0),
            jnp.argmin(x, axis=1),
            jnp.argmax(x),
            jnp.argmax(ties, axis=1),
            jnp.nanargmin(jnp.where(x > 1, jnp.nan, x), axis=0),
        )

    ties = np.ones((16, 32), np.int32)
    return fetch(f(place(mesh, values(16, 32), "a", "b"), place(mesh, ties, "a", "b")))


def case_reductions_of_every_kind():
    mesh = grid(a=2, b=4)

    @jax.jit
    def f(x, n):
        flags = x > -2
        return (
            [jnp.prod(x, axis=a) for a in (0, 1)],
            [jnp.min(x, axis=0), jnp.max(n), jnp.ptp(x, axis=1)],
            [jnp.all(flags, axis=1), jnp.any(~flags, axis=0), jnp.count_nonzero(flags)],
            [jax.scipy.special.logsumexp(x, axis=0), jnp.var(x), jnp.linalg.norm(x)],
        )

    n = np.random.default_rng(0).integers(0, 1 << 30, (16, 32)).astype(np.int32)
    return fetch(f(place(mesh, values(16, 32), "a", "b"), place(mesh, n, "a", "b")))


def case_reductions_with_functions_of_several_values():
    """Pairs that are reduced together: the partitioner may not split these over devices."""
    mesh = grid(a=2, b=4)

    @jax.jit
    def f(x):
        def better(left, right):
            keep = jnp.abs(left[0]) > jnp.abs(right[0])
            return jnp.where(keep, left[0], right[0]), jnp.where(keep, left[1], right[1])

        index = jax.lax.broadcasted_iota(jnp.int32, x.shape, 1)
        return jax.lax.reduce((x, index), (jnp.float32(0), jnp.int32(0)), better, (1,))

    return fetch(f(place(mesh, values(16, 32), "a", "b")))


def case_gather_and_scatter():
    mesh = grid(a=2, b=4)
    rows = np.random.default_rng(0).integers(0, 32, 24).astype(np.int32)

    @jax.jit
    @functools.partial(jax.value_and_grad, has_aux=True)
    def f(table, rows, updates):
        taken = table[rows]
        written = jnp.zeros_like(table).at[rows].add(updates).at[rows[:5], 3].max(9.0)
        kept = jnp.zeros((32, 16)).at[rows].set(updates[:, :1])
        return jnp.sin(taken).sum(), (taken, written, kept)

    return fetch(
        f(
            place(mesh, values(32, 16), "a", "b"),
            place(mesh, rows, "b"),
            place(mesh, values(24, 16, seed=1), "b", "a"),
        )
    )


def case_scatter_of_sharded_updates_with_unique_rows():
    mesh = ring()
    rows = np.random.default_rng(0).permutation(40)[:16].astype(np.int32)

    @jax.jit
    def f(x, rows, updates):
        return (
            x.at[rows].set(updates, unique_indices=True),
            x.at[rows].multiply(updates),
            x.at[rows].min(updates, mode="drop"),
        )

    return fetch(
        f(
            place(mesh, values(40, 6), "i"),
            place(mesh, rows, "i"),
            place(mesh, values(16, 6, seed=1), "i"),
        )
    )


def case_dynamic_slices():
    mesh = grid(a=2, b=4)

    @jax.jit
    def f(x, at):
        part = jax.lax.dynamic_slice(x, (at, at), (5, 7))
        return part, jax.lax.dynamic_update_slice(x, part * 0, (at + 1, at)), jnp.roll(x, at, 0)

    x = place(mesh, values(16, 32), "a", "b")
    return fetch([f(x, np.int32(at)) for at in (0, 6, 30)])


def case_shifts_pads_and_joins():
    mesh = grid(a=2, b=4)

    @jax.jit
    def f(x, y):
        return (
            jnp.roll(x, 3, axis=0),
            jnp.roll(x, (-1, 5), axis=(0, 1)),
            jnp.concatenate([x, y], axis=0),
            jnp.pad(x, ((1, 2), (3, 0)), mode="edge"),
            jnp.pad(x, 2, mode="wrap"),
            jax.lax.pad(x, jnp.float32(7), ((1, -2, 1), (0, 3, 0))),
            x[::-1, ::3],
            jnp.flip(x, 1)[3:11, 5:],
            jnp.repeat(x, 3, axis=0),
            jnp.tile(x, (2, 1)),
        )

    return fetch(
        f(place(mesh, values(16, 32), "a", "b"), place(mesh, values(8, 32, seed=1), "b", "a"))
    )


def case_reshapes_and_transposes():
    mesh = grid(a=2, b=4)

    @jax.jit
    def f(x):
        y = x.reshape(4, 4, 32).transpose(2, 0, 1)
        return y, x.reshape(-1), x.T.reshape(64, 8), jnp.stack(jnp.split(x, 4, axis=1))

    return fetch(f(place(mesh, values(16, 32), "a", "b")))


def case_einsum_chain():
    mesh = permuted(a=2, b=4)

    @jax.jit
    def f(x, y, z):
        whole = jnp.einsum("ij,jkl,lm->ikm", x, y, z)
        return whole, jnp.einsum("ikm,ij->jkm", whole, x), jnp.einsum("ii->i", x @ x.T)

    return fetch(
        f(
            place(mesh, values(8, 16), "a", "b"),
            place(mesh, values(16, 4, 8, seed=1), "b", None, "a"),
            place(mesh, values(8, 12, seed=2), "b", "a"),
        )
    )


def case_batched_products_in_mixed_types():
    mesh = grid(a=2, b=4)

    @jax.jit
    def f(x, y):
        half = x.astype(jnp.bfloat16) @ y.astype(jnp.bfloat16)
        wide = jnp.matmul(
            x.astype(jnp.bfloat16), y.astype(jnp.bfloat16), preferred_element_type=jnp.float32
        )
        whole = jnp.matmul(
            (x * 20).astype(jnp.int8), (y * 20).astype(jnp.int8), preferred_element_type=jnp.int32
        )
        return half, wide, whole, (x + 1j * x) @ (y - 2j * y)

    return fetch(
        f(
            place(mesh, values(4, 8, 16), "a", None, "b"),
            place(mesh, values(4, 16, 8, seed=1), "a", "b"),
        )
    )


def case_segments_and_counts():
    mesh = ring()
    ids = np.random.default_rng(0).integers(0, 10, 64).astype(np.int32)

    @jax.jit
    def f(x, ids):
        return (
            jax.ops.segment_sum(x, ids, 10),
            jax.ops.segment_max(x, ids, 10),
            jnp.bincount(ids, length=10),
            jnp.histogram(x, bins=7, range=(-2, 2))[0],
            jnp.searchsorted(jnp.sort(x[:, 0]), x[:5, 0]),
            jnp.unique(ids, size=12, fill_value=-1),
            jnp.nonzero(ids == 3, size=16, fill_value=-1)[0],
        )

    return fetch(f(place(mesh, values(64, 3), "i"), place(mesh, ids, "i")))


def case_random_numbers():
    mesh = grid(a=2, b=4)
    at = NamedSharding(mesh, P("a", "b"))

    @functools.partial(jax.jit, out_shardings=at)
    def f(key):
        keys = jax.random.split(key, 5)
        return (
            jax.random.normal(keys[0], (16, 32)),
            jax.random.randint(keys[1], (16, 32), 0, 100, jnp.int32),
            jax.random.bernoulli(keys[2], 0.3, (16, 32)),
            jax.random.permutation(keys[3], 64).reshape(8, 8),
            jax.random.categorical(keys[4], jnp.zeros((8, 8, 5))),
        )

    return fetch(f(jax.random.key(7)))


def case_random_numbers_by_device():
    mesh = ring()

    @jax.jit
    @functools.partial(jax.shard_map, mesh=mesh, in_specs=P(), out_specs=P("i"))
    def f(key):
        mine = jax.random.fold_in(key, jax.lax.axis_index("i"))
        x = jax.random.uniform(mine, (4, 3))
        return x / jax.lax.psum(x.sum(), "i")

    return fetch(f(jax.random.key(3)))


def case_rng_bit_generator():
    mesh = grid(a=2, b=4)
    f = jax.jit(
        lambda key: jax.random.normal(jax.random.key(key, impl="rbg"), (16, 32)),
        out_shardings=NamedSharding(mesh, P("a", "b")),
    )
    return fetch(f(place(mesh, np.int32(5))))


def case_uneven_sizes():
    """Results whose sizes no axis divides: XLA pads the shards within, and trims what comes out."""
    mesh = grid(a=2, b=4)

    @jax.jit
    def f(x):
        y = jax.lax.with_sharding_constraint(x[:13, :31], NamedSharding(mesh, P("a", "b")))
        return y @ y.T, jnp.cumsum(y, 0), jnp.sort(y, 1), y.sum(), jnp.argmax(y, 1), y[5:9, 3:30:7]

    return fetch(f(place(mesh, values(16, 32), "a", "b")))


def case_empty_and_scalar_arrays():
    mesh = grid(a=2, b=4)

    @jax.jit
    def f(x, empty, s):
        return (
            empty.sum(0),
            jnp.concatenate([x, empty]),
            x * s,
            x[:0].max(1, initial=3.0),
            s + x.sum(),
        )

    return fetch(
        f(
            place(mesh, values(8, 16), "a", "b"),
            place(mesh, np.zeros((0, 16), np.float32)),
            place(mesh, np.float32(2)),
        )
    )


def case_wide_types():
    with jax.enable_x64(True):
        mesh = grid(a=2, b=4)

        @jax.jit
        def f(x, n):
            z = x + 1j * x[::-1]
            return x @ x.T, z.sum(0), z @ z.conj().T, n.sum(1), jnp.max(n), jnp.prod(z, axis=1)

        n = np.random.default_rng(0).integers(-(1 << 60), 1 << 60, (16, 32))
        return fetch(
            f(place(mesh, values(16, 32, dtype=np.float64), "a", "b"), place(mesh, n, "a", "b"))
        )


def case_int4():
    mesh = ring()

    @jax.jit
    def f(packed, x):
        w = packed.astype(jnp.float32)
        return x @ w, (packed + packed).astype(jnp.int8), w.sum(0), packed * packed

    packed = np.random.default_rng(0).integers(-8, 8, (16, 16)).astype(jnp.int4)
    return fetch(f(place(mesh, packed, "i"), place(mesh, values(8, 16), None, "i")))


def case_donated_and_aliased():
    mesh = grid(a=2, b=4)

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def f(x, y):
        return x - x.mean(0), y + x.sum(1)[:, None], x.sum()

    x, y = place(mesh, values(8, 16), "a", "b"), place(mesh, values(8, 4, seed=1), "b")
    totals = []
    for _ in range(5):
        before = x
        x, y, total = f(x, y)
        assert before.is_deleted()
        totals.append(total)
    return fetch((x, y, totals))


def case_particles_with_all_pairs():
    mesh = ring()

    @jax.jit
    def f(x, v):
        def force(x):
            apart = x[:, None] - x[None]
            return -(apart / (1 + jnp.square(apart).sum(-1, keepdims=True))).sum(1)

        def body(_, state):
            x, v = state
            v = v + 0.01 * force(x)
            return x + 0.01 * v, v

        return jax.lax.fori_loop(0, 10, body, (x, v))

    return fetch(f(place(mesh, values(32, 3), "i"), place(mesh, values(32, 3, seed=1), "i")))


def case_game_of_life():
    mesh = grid(a=2, b=4)

    @jax.jit
    def f(board):
        def body(board, _):
            around = sum(
                jnp.roll(board, (i, j), (0, 1))
                for i in (-1, 0, 1)
                for j in (-1, 0, 1)
                if (i, j) != (0, 0)
            )
            board = ((around == 3) | ((board == 1) & (around == 2))).astype(jnp.uint8)
            return board, board.sum(dtype=jnp.int32)

        return jax.lax.scan(body, board, None, length=8)

    return fetch(f(place(mesh, (values(16, 32) > 0).astype(np.uint8), "a", "b")))


def case_nearest_neighbours():
    mesh = grid(query=2, base=4)

    @jax.jit
    def f(q, base):
        distances = jnp.square(q[:, None] - base[None]).sum(-1)
        best, index = jax.lax.top_k(-distances, 3)
        return best, index, base[index].mean(1)

    return fetch(f(place(mesh, values(8, 5), "query"), place(mesh, values(64, 5, seed=1), "base")))


def case_k_means():
    mesh = ring()

    @jax.jit
    def f(x):
        def body(_, centers):
            nearest = jnp.argmin(jnp.square(x[:, None] - centers).sum(-1), 1)
            mask = jax.nn.one_hot(nearest, 8)
            return mask.T @ x / jnp.maximum(mask.sum(0), 1)[:, None]

        return jax.lax.fori_loop(0, 6, body, x[:8])

    return fetch(f(place(mesh, values(64, 3), "i")))
