"""Collectives in loops, in their conditions, in branches and in what these call."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

from corpus.meshes import fetch, grid, mapped, permuted, place, ring, values


def case_scan_with_outputs():
    mesh = grid(a=2, b=4)

    @mapped(mesh, (P("a"), P(None, "b")), (P("a"), P(None, "a")))
    def f(x, ws):
        def body(x, w):
            x = jnp.tanh(jax.lax.psum(x[:, : w.shape[0]] @ w, "b"))
            return x, jax.lax.pmax(x.sum(0, keepdims=True), "a")

        return jax.lax.scan(body, x, ws)

    return fetch(
        f(place(mesh, values(8, 12), "a"), place(mesh, values(6, 8, 12, seed=1) / 4, None, "b"))
    )


def case_derivative_of_a_scan():
    mesh = ring()

    @jax.jit
    @jax.grad
    def f(w, x):
        @functools.partial(jax.shard_map, mesh=mesh, in_specs=(P(), P("i")), out_specs=P("i"))
        def run(w, x):
            def body(x, _):
                return jnp.tanh(x @ w) + jax.lax.pmean(x, "i"), None

            return jax.lax.scan(body, x, None, length=5)[0]

        return jnp.square(run(w, x)).sum()

    return fetch(f(place(mesh, values(8, 8) / 4), place(mesh, values(16, 8, seed=1), "i")))


def case_reversed_scan_over_a_sharded_axis():
    mesh = grid(a=2, b=4)

    @jax.jit
    def f(xs):
        return jax.lax.scan(lambda c, x: (0.9 * c + x, c.mean()), xs[0] * 0, xs, reverse=True)

    return fetch(f(place(mesh, values(16, 8), "a", "b")))


def case_collective_in_a_condition():
    """The loop ends when the largest value of all devices is small; each device then stops in the same round."""
    mesh = permuted(i=8)

    @mapped(mesh, P("i"), (P("i"), P("i")))
    def f(x):
        def going(state):
            return jax.lax.pmax(jnp.abs(state[0]).max(), "i") > 0.01

        def body(state):
            x, rounds = state
            return 0.5 * x - 0.1 * jax.lax.pmean(x, "i"), rounds + 1

        x, rounds = jax.lax.while_loop(going, body, (x, 0))
        return x, jnp.full(1, rounds)

    return fetch(f(place(mesh, values(16, 4), "i")))


def case_branches_that_communicate():
    mesh = grid(a=2, b=4)

    @mapped(mesh, (P("a", "b"), P()), P("a", "b"))
    def f(x, which):
        return jax.lax.switch(
            which,
            [
                lambda x: jax.lax.psum(x, "b"),
                lambda x: x * 2,
                lambda x: jax.lax.ppermute(x, "a", [(0, 1), (1, 0)]),
                lambda x: x - jax.lax.all_gather(x, "b").mean(0),
            ],
            x,
        )

    x = place(mesh, values(8, 16), "a", "b")
    return fetch([f(x, place(mesh, np.int32(which))) for which in range(4)])


def case_groups_that_take_different_branches():
    """Devices of one row branch alike, rows do not: the groups of a branch's collective are rows."""
    mesh = grid(a=2, b=4)

    @mapped(mesh, P("a", "b"), P("a", "b"))
    def f(x):
        def body(i, x):
            flag = (jax.lax.axis_index("a") + i) % 2 == 0
            return jax.lax.cond(
                flag,
                lambda x: x - jax.lax.pmean(x, "b"),
                lambda x: x / 2 + jax.lax.all_to_all(x, "b", 1, 1, tiled=True),
                x,
            )

        return jax.lax.fori_loop(0, 5, body, x)

    return fetch(f(place(mesh, values(8, 16), "a", "b")))


def case_branch_within_a_loop_within_a_branch():
    mesh = ring()

    @mapped(mesh, (P("i"), P()), P("i"))
    def f(x, flag):
        def body(i, x):
            return jax.lax.cond(
                i % 3 == 1, lambda x: x / 2 + jax.lax.psum(x, "i") / 16, lambda x: x + 1, x
            )

        def looped(x):
            return jax.lax.fori_loop(0, 7, body, x)

        return jax.lax.cond(flag, looped, lambda x: jax.lax.pmax(x, "i") + 0 * x, x)

    x = place(mesh, values(8, 3), "i")
    return fetch([f(x, place(mesh, np.bool_(flag))) for flag in (True, False)])


def case_nested_loops():
    mesh = grid(a=2, b=4)

    @mapped(mesh, P("a", "b"), P("a", "b"))
    def f(x):
        def inner(j, x):
            return x * 0.9 + jax.lax.pmean(x, "b") * 0.1

        def outer(i, x):
            return jax.lax.fori_loop(0, i + 1, inner, x) - jax.lax.pmean(x, "a") * 0.01

        return jax.lax.fori_loop(0, 4, outer, x)

    return fetch(f(place(mesh, values(8, 16), "a", "b")))


def case_loop_of_unknown_length():
    mesh = ring()

    @mapped(mesh, (P("i"), P()), P("i"))
    def f(x, count):
        return jax.lax.fori_loop(0, count, lambda _, x: jax.lax.psum(x, "i") / 7, x)

    x = place(mesh, values(8, 3), "i")
    return fetch([f(x, place(mesh, np.int32(count))) for count in (0, 1, 9)])


def case_associative_scan_over_a_sharded_axis():
    mesh = ring()

    @jax.jit
    def f(a, b):
        def combine(left, right):
            return left[0] * right[0], left[1] * right[0] + right[1]

        return jax.lax.associative_scan(combine, (a, b))

    return fetch(f(place(mesh, values(32, 4), "i"), place(mesh, values(32, 4, seed=1), "i")))


def case_map_over_batches():
    mesh = grid(a=2, b=4)

    @jax.jit
    def f(xs, w):
        return jax.lax.map(lambda x: jnp.tanh(x @ w).sum(0), xs)

    return fetch(
        f(place(mesh, values(6, 8, 16), None, "a", "b"), place(mesh, values(16, 8, seed=1), "b"))
    )


def case_conjugate_gradient():
    mesh = ring()
    a = values(32, 32)

    @jax.jit
    def solve(a, b):
        return jax.scipy.sparse.linalg.cg(lambda x: a @ x, b, maxiter=12)[0]

    return fetch(
        solve(
            place(mesh, a @ a.T + 8 * np.eye(32, dtype=np.float32), "i"),
            place(mesh, values(32, seed=1), "i"),
        )
    )


def case_newton_with_a_line_search():
    """A loop within a loop, both of which end by what all devices found together."""
    mesh = grid(a=2, b=4)

    @jax.jit
    def minimize(x, target):
        def loss(x):
            return jnp.square(jnp.square(x) - target).mean()

        def body(state):
            x, count = state
            g = jax.grad(loss)(x)

            def worse(step):
                return (loss(x - step * g) > loss(x)) & (step > 1e-4)

            return x - jax.lax.while_loop(worse, lambda s: s * 0.5, 16.0) * g, count + 1

        return jax.lax.while_loop(lambda s: (loss(s[0]) > 1e-4) & (s[1] < 20), body, (x, 0))

    return fetch(
        minimize(
            place(mesh, np.abs(values(8, 16)) + 0.5, "a", "b"),
            place(mesh, np.abs(values(8, 16, seed=1)), "a", "b"),
        )
    )


def case_early_exit_of_one_group():
    """A loop whose groups end after different rounds: the condition reduces over a row only."""
    mesh = grid(a=2, b=4)

    @mapped(mesh, P("a", "b"), (P("a", "b"), P("a", "b")))
    def f(x):
        x = x * (1 + 10 * jax.lax.axis_index("a"))

        def going(state):
            return jax.lax.pmax(jnp.abs(state[0]).max(), "b") > 0.1

        x, rounds = jax.lax.while_loop(
            going, lambda s: (s[0] / 2 - jax.lax.pmean(s[0], "b") / 64, s[1] + 1), (x, 0)
        )
        return x, jnp.full((1, 1), rounds)

    return fetch(f(place(mesh, values(8, 16), "a", "b")))


def case_custom_root_and_fixed_point():
    mesh = ring()

    @jax.jit
    @jax.grad
    def f(theta, x):
        @jax.custom_vjp
        def fixed(theta):
            return jax.lax.fori_loop(0, 30, lambda _, y: jnp.tanh(theta * y + x) * 0.5, x * 0)

        def backward(saved, g):
            y, theta = saved
            slope = jax.grad(lambda t, y: (jnp.tanh(t * y + x) * 0.5 * g).sum())(theta, y)
            return (slope,)

        fixed.defvjp(lambda t: (fixed(t), (fixed(t), t)), backward)
        return fixed(theta).sum()

    return fetch(f(place(mesh, np.float32(0.7)), place(mesh, values(64), "i")))


def check_permutations_of_one_row_only():
    """A row permutes while the other one does not: only pairs meet. XLA's own wait for all devices, without an end."""
    mesh = grid(a=2, b=4)

    @mapped(mesh, P("a", "b"), P("a", "b"))
    def f(x):
        def body(i, x):
            return jax.lax.cond(
                (jax.lax.axis_index("a") + i) % 2 == 0,
                lambda x: jax.lax.ppermute(x, "b", [(0, 1), (1, 2), (2, 3), (3, 0)]),
                lambda x: x + jax.lax.psum(x, "b"),
                x,
            )

        return jax.lax.fori_loop(0, 5, body, x)

    expected = np.arange(8.0, dtype=np.float32).reshape(2, 4)
    found = np.asarray(f(place(mesh, expected, "a", "b")))
    for i in range(5):
        for row in range(2):
            x = expected[row]
            expected[row] = np.roll(x, 1) if (row + i) % 2 == 0 else x + x.sum()
    np.testing.assert_array_equal(found, expected)
