"""Collectives by name, in every variant that JAX has, and algorithms that are written with them."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from corpus.meshes import fetch, grid, mapped, permuted, place, ring, values


def case_all_gather_variants():
    mesh = grid(a=2, b=4)
    gather = jax.lax.all_gather

    @mapped(mesh, P("a", "b"), P("a", "b"))
    def f(x):
        return (
            gather(x, "b"),
            gather(x, "b", tiled=True),
            gather(x, "b", axis=1),
            gather(x, "b", axis=1, tiled=True),
            gather(x, ("a", "b"), axis=2),
            gather(x, ("b", "a"), tiled=True),
            gather(x, "a", axis_index_groups=[[1, 0]]),
            gather(x, "b", axis_index_groups=[[0, 3], [1, 2]], tiled=True),
        )

    return fetch(f(place(mesh, values(8, 12), "a", "b")))


def case_psum_scatter_variants():
    mesh = grid(a=2, b=4)
    scatter = jax.lax.psum_scatter

    @mapped(mesh, P("a", "b"), P("a", "b"))
    def f(x):
        return (
            scatter(x, "b", tiled=True),
            scatter(x, "b", scatter_dimension=1, tiled=True),
            scatter(x, ("a", "b"), tiled=True),
            scatter(x, ("b", "a"), scatter_dimension=1, tiled=True),
            scatter(x[:4], "b")[None],
            scatter(x[:, :2], "a", scatter_dimension=1)[:, None],
            scatter(x, "b", axis_index_groups=[[0, 2], [1, 3]], tiled=True),
        )

    return fetch(f(place(mesh, values(16, 64), "a", "b")))


def case_all_to_all_variants():
    mesh = grid(a=2, b=4)
    exchange = jax.lax.all_to_all

    @mapped(mesh, P("a", "b"), P("a", "b"))
    def f(x):
        return (
            exchange(x, "b", 0, 1, tiled=True),
            exchange(x, "b", 1, 0, tiled=True),
            exchange(x, "b", 1, 1, tiled=True),
            exchange(x, ("a", "b"), 0, 1, tiled=True),
            exchange(x[:4], "b", 0, 1),
            exchange(x[:, :2], "a", 1, 0),
            exchange(x, "b", 0, 0, axis_index_groups=[[3, 0], [2, 1]], tiled=True),
        )

    return fetch(f(place(mesh, values(16, 32), "a", "b")))


def case_all_to_all_of_three_dimensions():
    mesh = ring()

    @mapped(mesh, P(None, "i"), P("i"))
    def heads_to_sequence(x):
        return jax.lax.all_to_all(x, "i", 2, 1, tiled=True)

    return fetch(heads_to_sequence(place(mesh, values(3, 16, 8, 4), None, "i")))


def case_all_to_all_of_many_small_pieces():
    """The compiler leaves them to XLA, which exchanges slices."""
    mesh = ring()

    @mapped(mesh, P(None, "i"), P(None, "i"))
    def f(x):
        return jax.lax.all_to_all(x, "i", 1, 1, tiled=True)

    return fetch(f(place(mesh, values(300, 128), None, "i")))


def case_permutations():
    mesh = permuted(a=2, b=4)

    @mapped(mesh, P("a", "b"), P("a", "b"))
    def f(x):
        return (
            jax.lax.ppermute(x, "b", [(i, (i + 1) % 4) for i in range(4)]),
            jax.lax.ppermute(x, "b", [(0, 3), (3, 0)]),
            jax.lax.ppermute(x, ("a", "b"), [(i, 7 - i) for i in range(8)]),
            jax.lax.ppermute(x, ("b", "a"), [(i, (i + 3) % 8) for i in range(0, 8, 2)]),
            jax.lax.pshuffle(x, "b", [2, 0, 3, 1]),
            jax.lax.ppermute((x, x.astype(jnp.int8), x > 0), "a", [(0, 1)]),
        )

    return fetch(f(place(mesh, values(8, 8, scale=20), "a", "b")))


def case_trees_of_reductions():
    """Variadic: several types and shapes at once, also an empty array and a scalar."""
    mesh = grid(a=2, b=4)

    @mapped(mesh, P("a", "b"), P("a", "b"))
    def f(x):
        tree = {
            "matrix": x,
            "half": x.astype(jnp.float16),
            "whole": (x * 10).astype(jnp.int32),
            "empty": x[:0],
            "scalar": x.sum(),
        }
        total = jax.lax.psum(tree, "b")
        total["scalar"] = total["scalar"][None, None]
        most = jax.lax.pmax(x, ("a", "b")) - jax.lax.pmin(x, "a")
        return total, most, jax.lax.pmean((x, x.T), "b")

    return fetch(f(place(mesh, values(8, 16), "a", "b")))


def case_groups_of_an_axis():
    mesh = ring()
    groups = [[0, 7], [1, 6], [2, 5], [3, 4]]

    @mapped(mesh, P("i"), P("i"))
    def f(x):
        return (
            jax.lax.psum(x, "i", axis_index_groups=groups),
            jax.lax.pmax(x, "i", axis_index_groups=[[0, 1, 2, 3], [4, 5, 6, 7]]),
            jax.lax.pmin(x, "i", axis_index_groups=[[7, 5, 3, 1], [6, 4, 2, 0]]),
        )

    return fetch(f(place(mesh, values(16, 5), "i")))


def case_pmap_with_groups():
    halves, pairs = [[0, 1, 2, 3], [4, 5, 6, 7]], [[0, 4], [1, 5], [2, 6], [3, 7]]

    @functools.partial(jax.pmap, axis_name="i")
    def f(x):
        return (
            jax.lax.psum(x, "i", axis_index_groups=halves),
            jax.lax.all_gather(x, "i", axis_index_groups=pairs),
            jax.lax.all_to_all(x, "i", 0, 0, axis_index_groups=halves),
            jax.lax.axis_index("i") + jax.lax.psum(1, "i"),
        )

    return fetch(f(values(8, 4, 3)))


def case_nested_pmap_and_vmap():
    @functools.partial(jax.pmap, axis_name="i", in_axes=(0, None))
    def f(x, w):
        return jax.vmap(lambda row: jax.lax.psum(row * w, "i") + jax.lax.pmean(row.sum(), "i"))(x)

    return fetch(f(values(8, 3, 6), values(6, seed=1)))


def case_vmap_over_collectives():
    mesh = grid(a=2, b=4)

    @mapped(mesh, P(None, "a", "b"), P(None, "a", "b"))
    def f(x):
        def one(x):
            turned = jax.lax.ppermute(x, "a", [(0, 1), (1, 0)])
            gathered = jax.lax.all_gather(x, "b", axis=1, tiled=True)
            scattered = jax.lax.psum_scatter(gathered, "b", scatter_dimension=1, tiled=True)
            return jax.lax.psum(x, "b") + turned + scattered

        return jax.vmap(one)(x), jax.vmap(one, in_axes=1, out_axes=1)(x)

    return fetch(f(place(mesh, values(4, 4, 8), None, "a", "b")))


def case_vmap_with_a_name_beside_the_mesh():
    mesh = ring()

    @mapped(mesh, P("i"), P("i"))
    def f(x):
        return jax.vmap(
            lambda row: jax.lax.psum(row, ("rows", "i")) + jax.lax.pmax(row, "rows"),
            axis_name="rows",
        )(x)

    return fetch(f(place(mesh, values(24, 5), "i")))


def case_derivatives_of_collectives():
    mesh = grid(a=2, b=4)

    @mapped(mesh, (P("a", "b"), P("a", "b")), P("a", "b"))
    def f(x, w):
        def body(x):
            y = jax.lax.all_gather(x, "b", axis=1, tiled=True)
            y = jax.lax.psum_scatter(jnp.sin(y), "b", scatter_dimension=1, tiled=True)
            y = jax.lax.all_to_all(y * w, "a", 0, 1, tiled=True)
            y = jax.lax.ppermute(y, "b", [(0, 1), (1, 2), (3, 0)])
            return jnp.sum(jnp.cos(jax.lax.psum(y, "a")))

        return jax.grad(body)(x), jax.jvp(body, (x,), (w,))[1][None, None]

    found = f(place(mesh, values(8, 16), "a", "b"), place(mesh, values(8, 16, seed=1), "a", "b"))
    # XLA's own sums begin with a zero, so negative zeros add up to a positive one there. Here they stay negative.
    return jax.tree.map(lambda each: each + 0.0, fetch(found))


def case_halo_exchange():
    """A stencil of two dimensions whose edges come from the neighbours, fifty times."""
    mesh = grid(a=2, b=4)

    @mapped(mesh, P("a", "b"), P("a", "b"))
    def f(x):
        def edges(x, axis, name, size):
            first = jax.lax.slice_in_dim(x, 0, 1, axis=axis)
            last = jax.lax.slice_in_dim(x, x.shape[axis] - 1, None, axis=axis)
            before = jax.lax.ppermute(last, name, [(i, i + 1) for i in range(size - 1)])
            behind = jax.lax.ppermute(first, name, [(i + 1, i) for i in range(size - 1)])
            return jnp.concatenate([before, x, behind], axis)

        def step(_, x):
            rows, columns = edges(x, 0, "a", 2), edges(x, 1, "b", 4)
            return x + 0.1 * (rows[:-2] + rows[2:] + columns[:, :-2] + columns[:, 2:] - 4 * x)

        return jax.lax.fori_loop(0, 50, step, x)

    return fetch(f(place(mesh, values(16, 32), "a", "b")))


def case_all_reduce_as_a_ring():
    """Reduce-scatter and all-gather by permutations; the same sum as XLA's up to the order, so by whole numbers."""
    mesh = permuted(i=8)
    turn = [(i, (i + 1) % 8) for i in range(8)]

    @mapped(mesh, P("i"), P("i"))
    def f(x):
        me = jax.lax.axis_index("i")
        parts = x.reshape(8, -1)
        carried = parts[(me + 7) % 8]
        for hop in range(1, 8):
            carried = jax.lax.ppermute(carried, "i", turn) + parts[(me + 7 - hop) % 8]
        whole = jax.lax.all_gather(carried, "i")
        return whole.reshape(x.shape) - jax.lax.psum(x, "i")

    x = np.random.default_rng(0).integers(-50, 50, (64, 8)).astype(np.float32)
    result = fetch(f(place(mesh, x, "i")))
    assert not np.any(result)
    return result


def case_prefix_sums_by_doubling():
    mesh = ring()

    @mapped(mesh, P("i"), P("i"))
    def f(x):
        total = x.sum(0)
        before = jax.lax.ppermute(total, "i", [(i, i + 1) for i in range(7)])
        for step in (1, 2, 4):
            before += jax.lax.ppermute(before, "i", [(i, i + step) for i in range(8 - step)])
        return jnp.cumsum(x, 0) + before

    return fetch(f(place(mesh, values(40, 3), "i")))


def case_distributed_matrix_product():
    """Cannon's way on a square of four, and SUMMA's on two by four."""
    square, oblong = permuted(a=4, b=2), grid(a=2, b=4)
    square = Mesh(square.devices[:2], ("a", "b"))

    @mapped(square, P("a", "b"), P("a", "b"))
    def cannon(a, b):
        i, j = jax.lax.axis_index("a"), jax.lax.axis_index("b")
        a = jnp.where(i == 1, jax.lax.ppermute(a, "b", [(0, 1), (1, 0)]), a)
        b = jnp.where(j == 1, jax.lax.ppermute(b, "a", [(0, 1), (1, 0)]), b)
        total = a @ b
        a = jax.lax.ppermute(a, "b", [(0, 1), (1, 0)])
        b = jax.lax.ppermute(b, "a", [(0, 1), (1, 0)])
        return total + a @ b

    @mapped(oblong, P("a", "b"), P("a", "b"))
    def summa(a, b):
        rows = jax.lax.all_gather(a, "b", axis=1, tiled=True)
        columns = jax.lax.all_gather(b, "a", axis=0, tiled=True)
        return rows @ columns

    a, b = values(16, 24), values(24, 32, seed=1)
    return fetch(
        [
            f(*(place(m, x, "a", "b") for x in (a, b)))
            for f, m in ((cannon, square), (summa, oblong))
        ]
    )


def case_collective_matrix_product():
    """The gather is overlapped with products, a permutation at a time, in a loop."""
    mesh = ring()
    turn = [(i, (i - 1) % 8) for i in range(8)]

    @mapped(mesh, (P("i"), P(None, "i")), P(None, "i"))
    def f(x, w):
        me = jax.lax.axis_index("i")

        def body(hop, state):
            out, x = state
            out = jax.lax.dynamic_update_slice(out, x @ w, ((me + hop) % 8 * x.shape[0], 0))
            return out, jax.lax.ppermute(x, "i", turn)

        out = jnp.zeros((x.shape[0] * 8, w.shape[1]), x.dtype)
        return jax.lax.fori_loop(0, 8, body, (out, x))[0]

    return fetch(
        f(place(mesh, values(32, 16), "i"), place(mesh, values(16, 24, seed=1), None, "i"))
    )


def case_sample_sort():
    """Splitters of all devices' samples, buckets of fixed capacity exchanged, each sorted where it arrives."""
    mesh = ring()

    @mapped(mesh, P("i"), P("i"))
    def f(x):
        x = jnp.sort(x)
        samples = jnp.sort(jax.lax.all_gather(x[:: x.size // 8], "i", tiled=True))
        splitters = samples[8::8]
        bucket = jnp.searchsorted(splitters, x)
        place_in = jnp.arange(x.size) - jnp.searchsorted(bucket, bucket)
        buckets = jnp.full((8, x.size), jnp.inf, x.dtype).at[bucket, place_in].set(x)
        arrived = jax.lax.all_to_all(buckets, "i", 0, 0, tiled=True)
        return jnp.sort(arrived.reshape(-1))

    x = values(256)
    sorted_parts = fetch(f(place(mesh, x, "i")))
    whole = np.concatenate(sorted_parts)
    np.testing.assert_array_equal(whole[np.isfinite(whole)], np.sort(x))
    return sorted_parts


def case_several_meshes_in_one_program():
    """The same devices as 2x4, 4x2 and 2x2x2; results of one mesh enter the next."""
    first, second, third = grid(a=2, b=4), grid(c=4, d=2), grid(e=2, f=2, g=2)

    @jax.jit
    def f(x):
        def part(mesh, spec, body):
            return jax.shard_map(body, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)

        x = part(first, P("a", "b"), lambda x: x + jax.lax.psum(x, "b"))(x)
        x = part(second, P("d", "c"), lambda x: x - jax.lax.pmean(x, "c"))(x)
        return part(third, P(("e", "g"), "f"), lambda x: x * jax.lax.pmax(x, ("f", "g")))(x)

    return fetch(f(place(first, values(8, 16), "a", "b")))


def case_sub_axes():
    """A mesh over which only a part of the axes is manual; XLA's partitioner does the rest."""
    mesh = grid(a=2, b=2, c=2)

    @jax.jit
    def f(x, w):
        part = functools.partial(
            jax.shard_map, mesh=mesh, axis_names={"a"}, in_specs=P("a"), out_specs=P("a")
        )
        y = part(lambda x: x - jax.lax.pmean(x, "a"))(x)
        return (y @ w).sum(1), y

    return fetch(
        f(place(mesh, values(8, 16), "a", "b"), place(mesh, values(16, 12, seed=1), "b", "c"))
    )


def case_nested_shard_map():
    mesh = grid(a=2, b=4)

    @jax.jit
    @functools.partial(
        jax.shard_map, mesh=mesh, axis_names={"a"}, in_specs=P("a"), out_specs=P("a")
    )
    def f(x):
        @functools.partial(
            jax.shard_map, axis_names={"b"}, in_specs=P(None, "b"), out_specs=P(None, "b")
        )
        def inner(x):
            return x + jax.lax.psum(x, "b")

        return inner(x) * 2 + jax.lax.psum(x, "a")

    return fetch(f(place(mesh, values(8, 16), "a", "b")))


def case_nested_jit():
    mesh = grid(a=2, b=4)

    @jax.jit
    def inner(x):
        return jax.lax.psum(x, "a") * jax.lax.axis_index("b")

    @mapped(mesh, P("a", "b"), P("a", "b"))
    def f(x):
        return inner(x) + jax.jit(lambda x: jax.lax.ppermute(x, "b", [(3, 0)]))(inner(x + 1))

    return fetch(f(place(mesh, values(8, 16), "a", "b")))


def case_reshards():
    """Every pair of these layouts: gathers, slices, exchanges and permutations of XLA's choice."""
    mesh, other = grid(a=2, b=4), permuted(a=2, b=4)
    specs = [P("a", "b"), P("b", "a"), P(("a", "b")), P(None, ("b", "a")), P("b"), P()]
    placed = [place(mesh, values(16, 24), *spec) for spec in specs]

    @jax.jit
    def f(xs):
        return [
            jax.lax.with_sharding_constraint(x * 2, jax.sharding.NamedSharding(mesh, spec))
            for x in xs
            for spec in specs
        ]

    moved = jax.device_put(placed[0], jax.sharding.NamedSharding(other, P("b", "a")))
    return fetch((f(placed), moved))


def case_narrow_types():
    """Types of other sizes than four bytes, that only move or are reduced."""
    mesh = grid(a=2, b=4)
    x = np.random.default_rng(0).integers(-7, 8, (8, 16))

    @mapped(mesh, P("a", "b"), P("a", "b"))
    def f(tree):
        moved = jax.tree.map(
            lambda x: jax.lax.ppermute(
                jax.lax.all_gather(x, "b", tiled=True), "a", [(0, 1), (1, 0)]
            ),
            tree,
        )
        whole = {
            n: x for n, x in tree.items() if n in ("int8", "uint8", "int16", "uint16", "int64")
        }
        return moved, jax.lax.psum(whole, ("a", "b")), jax.lax.pmax(whole, "a")

    names = ["bool", "int8", "uint8", "int16", "uint16", "int64", "complex64"]
    floats = ["float16", "bfloat16"]
    with jax.enable_x64(True):
        tree = {name: place(mesh, x.astype(name), "a", "b") for name in names}
        tree |= {name: place(mesh, x.astype(getattr(jnp, name)), "a", "b") for name in floats}
        return fetch(f(tree))


def case_chained_steps():
    """Two hundred launches in flight, whose collectives wait for those before them."""
    mesh = permuted(a=4, b=2)

    @functools.partial(mapped(mesh, P("a", "b"), P("a", "b")))
    def step(x):
        return x - 0.5 * jax.lax.pmean(
            jax.lax.ppermute(x, "a", [(i, (i + 1) % 4) for i in range(4)]), "b"
        )

    x = place(mesh, values(8, 8), "a", "b")
    for i in range(200):
        x = step(x)
        if i % 25 == 24:
            x.block_until_ready()  # in-process, more launches in flight block the pool's threads
    return fetch(x)
