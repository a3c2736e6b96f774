"""Decompositions and solutions of matrices that are sharded, single and in batches. LAPACK's functions are missing in
the same plugin in-process, so each `check_*` compares with NumPy or by what defines the result. TOLERANCE: results
have norms near 1 to 100, float32 has 1e-7, and the algorithms' own errors grow with the size (32).
"""

import jax
import jax.numpy as jnp
import numpy as np

from corpus.meshes import grid, place, ring, values

TOLERANCE = 2e-3


def near(found, expected):
    np.testing.assert_allclose(np.asarray(found), expected, rtol=TOLERANCE, atol=TOLERANCE)


def definite(*shape):
    a = values(*shape)
    return a @ np.swapaxes(a, -1, -2) / 4 + np.eye(shape[-1], dtype=np.float32)


def turned(a):
    return np.swapaxes(np.asarray(a), -1, -2)


def check_cholesky():
    a = definite(32, 32)
    factor = np.asarray(jax.jit(jnp.linalg.cholesky)(place(grid(a=2, b=4), a, "a", "b")))
    near(factor @ factor.T, a)
    assert not np.any(np.triu(factor, 1))


def check_cholesky_of_a_batch():
    a = definite(16, 6, 6)
    factor = np.asarray(jax.jit(jnp.linalg.cholesky)(place(ring(), a, "i")))
    near(factor, np.linalg.cholesky(a))


def check_qr():
    a = values(32, 16)
    q, r = jax.jit(jnp.linalg.qr)(place(grid(a=2, b=4), a, "a", "b"))
    near(np.asarray(q) @ np.asarray(r), a)
    near(turned(q) @ np.asarray(q), np.eye(16))


def check_qr_of_tall_parts():
    """Each device decomposes its rows, and all the gathered triangles: a tall matrix in one exchange."""
    mesh, a = ring(), values(128, 4)

    def parts(x):
        q, r = jnp.linalg.qr(x)
        again, whole = jnp.linalg.qr(jax.lax.all_gather(r, "i", tiled=True))
        mine = jax.lax.dynamic_slice_in_dim(again, jax.lax.axis_index("i") * 4, 4)
        return q @ mine, whole

    spec = jax.sharding.PartitionSpec
    f = jax.shard_map(
        parts, mesh=mesh, in_specs=spec("i"), out_specs=(spec("i"), spec()), check_vma=False
    )
    q, r = jax.jit(f)(place(mesh, a, "i"))
    near(np.asarray(q) @ np.asarray(r), a)
    near(turned(q) @ np.asarray(q), np.eye(4))


def check_svd():
    a = values(24, 16)
    u, s, v = jax.jit(lambda a: jnp.linalg.svd(a, full_matrices=False))(
        place(grid(a=2, b=4), a, "a", "b")
    )
    near(np.asarray(u) * np.asarray(s) @ np.asarray(v), a)
    near(s, np.linalg.svd(a, compute_uv=False))


def check_svd_of_a_batch():
    a = values(8, 5, 4)
    s = jax.jit(lambda a: jnp.linalg.svd(a, compute_uv=False))(place(ring(), a, "i"))
    near(s, np.linalg.svd(a, compute_uv=False))


def check_eigh():
    a = definite(16, 16)
    w, v = jax.jit(jnp.linalg.eigh)(place(grid(a=2, b=4), a, "a", "b"))
    near(w, np.linalg.eigvalsh(a))
    near(np.asarray(v) * np.asarray(w) @ turned(v), a)


def check_eigh_of_a_batch():
    a = definite(16, 5, 5)
    w, v = jax.jit(jnp.linalg.eigh)(place(ring(), a, "i"))
    near(np.asarray(v) * np.asarray(w)[:, None] @ turned(v), a)


def check_solve_and_inverse():
    a, b = definite(16, 16), values(16, 4, seed=1)
    mesh = grid(a=2, b=4)

    @jax.jit
    def f(a, b):
        return jnp.linalg.solve(a, b), jnp.linalg.inv(a), jnp.linalg.slogdet(a)[1]

    x, inverse, logarithm = f(place(mesh, a, "a", "b"), place(mesh, b, "b"))
    near(a @ np.asarray(x), b)
    near(a @ np.asarray(inverse), np.eye(16))
    near(logarithm, np.linalg.slogdet(a)[1])


def check_triangular_solve():
    a, b = np.tril(definite(16, 16)), values(16, 8, seed=1)
    mesh = grid(a=2, b=4)
    x = jax.jit(lambda a, b: jax.scipy.linalg.solve_triangular(a, b, lower=True))(
        place(mesh, a, "a", "b"), place(mesh, b, None, "b")
    )
    near(a @ np.asarray(x), b)


def check_least_squares_and_its_gradient():
    a, b = values(32, 8), values(32, seed=1)
    mesh = ring()

    @jax.jit
    def f(a, b):
        def fit(b):
            return jnp.linalg.solve(a.T @ a, a.T @ b)

        return fit(b), jax.grad(lambda b: jnp.square(fit(b)).sum())(b)

    x, slope = f(place(mesh, a, "i"), place(mesh, b, "i"))
    inverse = np.linalg.pinv(a)
    near(x, inverse @ b)
    near(slope, 2 * inverse.T @ inverse @ b)


def check_gradient_through_cholesky():
    a = definite(12, 12)
    f = jax.jit(jax.grad(lambda a: jnp.log(jnp.diag(jnp.linalg.cholesky(a))).sum() * 2))
    near(f(place(grid(a=2, b=4), a, "a", "b")), np.linalg.inv(a))


def check_power_iteration_with_decompositions_in_a_loop():
    """Orthogonal iteration: a decomposition and a sharded product in each round of a loop."""
    mesh = ring()
    a = definite(32, 32)

    @jax.jit
    def f(a, q):
        def body(_, q):
            return jnp.linalg.qr(a @ q)[0]

        q = jax.lax.fori_loop(0, 200, body, q)
        return jnp.diag(q.T @ a @ q)

    found = np.sort(
        np.asarray(f(place(mesh, a, "i"), place(mesh, np.eye(32, 3, dtype=np.float32))))
    )
    near(found / 10, np.linalg.eigvalsh(a)[-3:] / 10)
