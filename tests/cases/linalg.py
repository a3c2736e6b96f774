"""`jnp.linalg`, `jax.scipy.linalg` and `jax.lax.linalg` against numpy and scipy in double precision.

Each `check_X(dtype)` compares one function on single matrices and on batches, within the precision of
the element type; where a decomposition is not unique, it checks the defining properties. Compilation
takes nearly all of the time: where possible, one program computes all shapes or options of a check, and
LINALG_BATCHED_ONLY drops the single matrices of checks that have batches. Needs JAX_ENABLE_X64.
"""

import itertools
import os
from typing import Any

import jax
import jax.lax.linalg as lax_linalg
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
import scipy.linalg

BATCHES = [(2, 3)] if os.environ.get("LINALG_BATCHED_ONLY") else [(), (2, 3)]
TOLERANCE = {"float32": 3e-4, "complex64": 3e-4, "float64": 1e-10, "complex128": 1e-10}


def names_in_jax():
    """Every public function of jnp.linalg: each must have a check."""
    return [name for name in dir(jnp.linalg) if not name.startswith("_")]


def matrix(dtype, *shape, seed=0):
    rng = np.random.default_rng([seed, *shape])
    values = rng.standard_normal(shape)
    if dtype.startswith("complex"):
        values = values + 1j * rng.standard_normal(shape)
    return values.astype(dtype)


def regular(dtype, *shape):
    """Square and far from singular."""
    return matrix(dtype, *shape) + (2 * np.sqrt(shape[-1]) * np.eye(shape[-1])).astype(dtype)


def definite(dtype, *shape):
    a = matrix(dtype, *shape)
    return a @ adjoint(a) + np.eye(shape[-1], dtype=dtype)


def symmetric(dtype, *shape):
    a = matrix(dtype, *shape)
    return (a + adjoint(a)) / 2


def adjoint(a):
    return np.conj(np.swapaxes(a, -1, -2))


def wide(a):
    return np.asarray(a).astype(np.complex128 if np.iscomplexobj(a) else np.float64)


def run(function, *arguments):
    return jax.device_get(jax.jit(function)(*arguments))


def each(function, inputs):
    """The results for each tuple of arguments, from one program, since compilation takes the time."""
    return run(lambda inputs: [function(*arguments) for arguments in inputs], inputs)


def for_options(function, options, *arguments):
    """The same for one tuple of arguments and each option, which is the last argument."""
    return run(lambda *a: [function(*a, option) for option in options], *arguments)


def batches(make, shapes):
    """Inputs of every shape, single and batched."""
    return [make(*batch, *shape) for batch in BATCHES for shape in shapes]


def close(found, expected, dtype, what=""):
    found, expected = np.asarray(found), np.asarray(expected)
    tolerance = TOLERANCE[dtype]
    scale = float(np.max(np.abs(expected), initial=0.0))
    np.testing.assert_allclose(
        found, expected, rtol=tolerance, atol=tolerance * max(scale, 1e-300), err_msg=what
    )


def of_type(found, dtype):
    assert found.dtype == np.dtype(dtype), f"{found.dtype} instead of {dtype}"


def real(dtype):
    return {"complex64": "float32", "complex128": "float64"}.get(dtype, dtype)


def unitary(q, dtype, what="columns"):
    q = wide(q)
    eye = np.broadcast_to(np.eye(q.shape[-1]), (*q.shape[:-2], q.shape[-1], q.shape[-1]))
    close(adjoint(q) @ q, eye, dtype, f"{what} are not orthonormal")


def same_set(found, expected, dtype):
    """Compares eigenvalues in any order."""
    found, expected = found.reshape(-1, found.shape[-1]), expected.reshape(-1, found.shape[-1])
    for f, e in zip(found, expected, strict=True):
        distance = np.abs(f[:, None] - e[None, :])
        limit = TOLERANCE[dtype] * max(1.0, np.abs(e).max(initial=0.0)) * 10
        assert distance.min(axis=0).max() < limit and distance.min(axis=1).max() < limit, (f, e)


# --- jnp.linalg: factorizations ---


def check_cholesky(dtype):
    inputs = batches(lambda *s: (definite(dtype, *s),), [(1, 1), (5, 5), (70, 70)])
    for (a,), found in zip(inputs, each(jnp.linalg.cholesky, inputs), strict=True):
        of_type(found, dtype)
        close(found, np.linalg.cholesky(wide(a)), dtype)
    close(run(lambda a: jnp.linalg.cholesky(a, upper=True), a), adjoint(found), dtype)
    bad = np.stack([np.eye(3), -np.eye(3), np.full((3, 3), np.nan)]).astype(dtype)
    found = run(jnp.linalg.cholesky, bad)
    close(found[0], np.eye(3), dtype)
    assert np.isnan(found[1:]).any(axis=(1, 2)).all()
    assert run(jnp.linalg.cholesky, np.zeros((0, 3, 3), dtype)).shape == (0, 3, 3)
    assert run(jnp.linalg.cholesky, np.zeros((2, 0, 0), dtype)).shape == (2, 0, 0)


def check_qr(dtype):
    def all_modes(a):
        return [jnp.linalg.qr(a, mode=mode) for mode in ("reduced", "complete", "r", "raw")]

    inputs = batches(lambda *s: (matrix(dtype, *s),), [(6, 6), (7, 4), (4, 7), (90, 60)])
    for (a,), found in zip(inputs, each(all_modes, inputs), strict=True):
        reduced, complete, r_only, (h, tau) = found
        for q, r in (reduced, complete):
            of_type(q, dtype)
            unitary(q, dtype)
            close(wide(q) @ wide(r), a, dtype, f"{a.shape}")
            close(r, np.triu(r), dtype)
        close(np.abs(r_only), np.abs(np.linalg.qr(wide(a), mode="r")), dtype)
        *batch, m, n = a.shape
        assert h.shape == (*batch, n, m) and tau.shape == (*batch, min(m, n))
    for shape in [(0, 4), (4, 0), (0, 3, 3)]:
        q, r = run(jnp.linalg.qr, np.zeros(shape, dtype))
        expected = np.linalg.qr(np.zeros(shape))
        assert (q.shape, r.shape) == (expected[0].shape, expected[1].shape)


def check_svd(dtype):
    def both(a):
        return [jnp.linalg.svd(a, full_matrices=full) for full in (False, True)]

    inputs = batches(lambda *s: (matrix(dtype, *s),), [(5, 5), (7, 4), (4, 7), (80, 50)])
    for (a,), found in zip(inputs, each(both, inputs), strict=True):
        for u, s, vh in found:
            of_type(u, dtype)
            of_type(s, real(dtype))
            unitary(u, dtype, "u's columns")
            unitary(adjoint(vh), dtype, "vh's rows")
            close(s, np.linalg.svd(wide(a), compute_uv=False), dtype)
            k = min(a.shape[-2:])
            close((wide(u)[..., :k] * s[..., None, :]) @ wide(vh)[..., :k, :], a, dtype)
    assert np.isnan(run(jnp.linalg.svd, np.full((3, 3), np.nan, dtype))[1]).all()
    u, s, vh = run(jnp.linalg.svd, np.zeros((2, 3, 0), dtype))
    assert (u.shape, s.shape, vh.shape) == ((2, 3, 3), (2, 0), (2, 0, 0))
    assert run(jnp.linalg.svd, np.zeros((0, 4, 3), dtype))[0].shape == (0, 4, 4)


def check_svdvals(dtype):
    inputs = batches(lambda *s: (matrix(dtype, *s),), [(5, 5), (7, 4), (4, 7)])
    for (a,), found in zip(inputs, each(jnp.linalg.svdvals, inputs), strict=True):
        close(found, np.linalg.svd(wide(a), compute_uv=False), dtype)


# --- jnp.linalg: eigenvalues ---


def check_eig(dtype):
    inputs = batches(lambda *s: (matrix(dtype, *s),), [(1, 1), (2, 2), (6, 6), (50, 50)])
    for (a,), (w, v) in zip(inputs, each(jnp.linalg.eig, inputs), strict=True):
        assert w.dtype == v.dtype == np.result_type(dtype, np.complex64)
        same_set(w, np.linalg.eigvals(wide(a)), dtype)
        close(wide(a) @ v, wide(v) * w[..., None, :], dtype, "a v = v w")
        close(np.linalg.norm(v, axis=-2), np.ones(a.shape[:-1]), dtype, "unit columns")
    found = run(jnp.linalg.eig, np.stack([np.eye(3), np.full((3, 3), np.inf)]).astype(dtype))
    close(found[0][0], np.ones(3), dtype)
    assert np.isnan(found[0][1]).all() and np.isnan(found[1][1]).all()
    assert run(jnp.linalg.eig, np.zeros((0, 3, 3), dtype))[1].shape == (0, 3, 3)
    assert run(jnp.linalg.eig, np.zeros((2, 0, 0), dtype))[0].shape == (2, 0)


def check_eigvals(dtype):
    inputs = batches(lambda *s: (matrix(dtype, *s),), [(1, 1), (6, 6)])
    for (a,), found in zip(inputs, each(jnp.linalg.eigvals, inputs), strict=True):
        same_set(found, np.linalg.eigvals(wide(a)), dtype)


def check_eigh(dtype):
    def both(a):
        return [jnp.linalg.eigh(a, UPLO=triangle) for triangle in ("L", "U")]

    inputs = batches(lambda *s: (symmetric(dtype, *s),), [(1, 1), (6, 6), (60, 60)])
    for (a,), found in zip(inputs, each(both, inputs), strict=True):
        for w, v in found:
            of_type(w, real(dtype))
            of_type(v, dtype)
            close(w, np.linalg.eigvalsh(wide(a)), dtype)
            unitary(v, dtype)
            close(wide(a) @ v, wide(v) * w[..., None, :], dtype)
    assert np.isnan(run(jnp.linalg.eigh, np.full((3, 3), np.nan, dtype))[0]).all()
    assert run(jnp.linalg.eigh, np.zeros((2, 0, 0), dtype))[1].shape == (2, 0, 0)
    # Without symmetrization, eigh reads only one triangle.
    half = np.where(np.tri(6, dtype=bool), a[..., :6, :6], np.nan).astype(dtype)
    _, w = run(lambda a: lax_linalg.eigh(a, lower=True, symmetrize_input=False), half)
    close(w, np.linalg.eigvalsh(wide(a[..., :6, :6])), dtype)


def check_eigvalsh(dtype):
    for batch in BATCHES:
        a = symmetric(dtype, *batch, 6, 6)
        close(run(jnp.linalg.eigvalsh, a), np.linalg.eigvalsh(wide(a)), dtype)


# --- jnp.linalg: solving ---


def check_solve(dtype):
    inputs = batches(
        lambda *s: (regular(dtype, *s), matrix(dtype, *s[:-1], 3)), [(1, 1), (5, 5), (70, 70)]
    )
    for (a, b), found in zip(inputs, each(jnp.linalg.solve, inputs), strict=True):
        of_type(found, dtype)
        close(found, np.linalg.solve(wide(a), wide(b)), dtype)
    b = matrix(dtype, 70)
    expected = np.linalg.solve(wide(a[0, 0]), wide(b))
    close(run(jnp.linalg.solve, a[0, 0], b), expected, dtype)


def check_inv(dtype):
    inputs = batches(lambda *s: (regular(dtype, *s),), [(1, 1), (6, 6), (40, 40)])
    for (a,), found in zip(inputs, each(jnp.linalg.inv, inputs), strict=True):
        close(found, np.linalg.inv(wide(a)), dtype)
    assert not np.isfinite(run(jnp.linalg.inv, np.zeros((2, 2), dtype))).any()
    assert run(jnp.linalg.inv, np.zeros((0, 2, 2), dtype)).shape == (0, 2, 2)


def check_det(dtype):
    inputs = batches(lambda *s: (matrix(dtype, *s),), [(n, n) for n in (1, 2, 3, 4, 7)])
    for (a,), found in zip(inputs, each(jnp.linalg.det, inputs), strict=True):
        close(found, np.linalg.det(wide(a)), dtype)
    assert run(jnp.linalg.det, np.ones((5, 5), dtype)) == 0


def check_slogdet(dtype):
    inputs = batches(lambda *s: (matrix(dtype, *s),), [(1, 1), (4, 4), (50, 50)])
    for (a,), (sign, logarithm) in zip(inputs, each(jnp.linalg.slogdet, inputs), strict=True):
        expected = np.linalg.slogdet(wide(a))
        close(sign, expected[0], dtype)
        close(logarithm, expected[1], dtype)
    assert run(jnp.linalg.slogdet, np.zeros((3, 3), dtype))[1] == -np.inf


def check_lstsq(dtype):
    shapes = itertools.product([(7, 4), (4, 7), (5, 5)], [(), (2,)])
    inputs = [(matrix(dtype, m, n), matrix(dtype, m, *columns)) for (m, n), columns in shapes]
    for (a, b), found in zip(inputs, each(jnp.linalg.lstsq, inputs), strict=True):
        x, residuals, rank, s = found
        expected = np.linalg.lstsq(wide(a), wide(b), rcond=None)
        close(x, expected[0], dtype)
        close(s, expected[3], dtype)
        assert rank == expected[2]
        if a.shape[0] > a.shape[1]:
            close(np.ravel(residuals), np.ravel(expected[1]), dtype)


def check_pinv(dtype):
    inputs = batches(lambda *s: (matrix(dtype, *s),), [(5, 5), (7, 4), (4, 7)])
    for (a,), found in zip(inputs, each(jnp.linalg.pinv, inputs), strict=True):
        close(found, np.linalg.pinv(wide(a)), dtype)
    a = definite(dtype, 5, 5)
    close(run(lambda a: jnp.linalg.pinv(a, hermitian=True), a), np.linalg.inv(wide(a)), dtype)


def check_cond(dtype):
    for batch in BATCHES:
        a = regular(dtype, *batch, 5, 5)
        orders: tuple[Any, ...] = (None, 2, -2, "fro", 1, np.inf)
        for p, found in zip(orders, for_options(jnp.linalg.cond, orders, a), strict=True):
            close(found, np.linalg.cond(wide(a), p), dtype, f"p={p}")


def check_matrix_rank(dtype):
    for batch in BATCHES:
        a = matrix(dtype, *batch, 6, 3) @ matrix(dtype, *batch, 3, 5)
        found = run(jnp.linalg.matrix_rank, a)
        np.testing.assert_array_equal(found, np.full(batch, 3))


def check_matrix_power(dtype):
    powers = (-3, -1, 0, 1, 2, 5)
    for batch in BATCHES:
        a = regular(dtype, *batch, 4, 4)
        results = for_options(jnp.linalg.matrix_power, powers, a)
        for power, found in zip(powers, results, strict=True):
            close(found, np.linalg.matrix_power(wide(a), power), dtype, f"power {power}")


def check_tensorinv(dtype):
    a = regular(dtype, 24, 24).reshape(4, 6, 8, 3)
    found = run(lambda a: jnp.linalg.tensorinv(a, ind=2), a)
    close(found, np.linalg.tensorinv(wide(a), ind=2), dtype)


def check_tensorsolve(dtype):
    a, b = regular(dtype, 24, 24).reshape(4, 6, 8, 3), matrix(dtype, 4, 6)
    close(run(jnp.linalg.tensorsolve, a, b), np.linalg.tensorsolve(wide(a), wide(b)), dtype)


# --- jnp.linalg: norms and products ---


def check_norm(dtype):
    orders: tuple[Any, ...] = (None, "fro", "nuc", 1, -1, 2, -2, np.inf)
    for batch in BATCHES:
        a = matrix(dtype, *batch, 4, 5)
        results = for_options(lambda a, o: jnp.linalg.norm(a, o, axis=(-2, -1)), orders, a)
        for order, found in zip(orders, results, strict=True):
            close(found, np.linalg.norm(wide(a), order, axis=(-2, -1)), dtype, f"ord={order}")
    orders = (None, 0, 1, 2, 3, np.inf, -np.inf)
    results = for_options(lambda a, o: jnp.linalg.norm(a, o, axis=-1), orders, a)
    for order, found in zip(orders, results, strict=True):
        close(found, np.linalg.norm(wide(a), order, axis=-1), dtype, f"vector ord={order}")


def check_matrix_norm(dtype):
    orders: tuple[Any, ...] = ("fro", "nuc", 1, 2, -2, np.inf)
    for batch in BATCHES:
        a = matrix(dtype, *batch, 4, 5)
        results = for_options(lambda a, o: jnp.linalg.matrix_norm(a, ord=o), orders, a)
        for order, found in zip(orders, results, strict=True):
            close(found, np.linalg.norm(wide(a), order, axis=(-2, -1)), dtype, f"ord={order}")


def check_vector_norm(dtype):
    for batch, order in itertools.product(BATCHES, [1, 2, np.inf]):
        a = matrix(dtype, *batch, 4, 5)
        found = run(lambda a, o=order: jnp.linalg.vector_norm(a, axis=-1, ord=o), a)
        close(found, np.linalg.norm(wide(a), order, axis=-1), dtype, f"ord={order}")


def check_matmul(dtype):
    for batch in BATCHES:
        a, b = matrix(dtype, *batch, 4, 5), matrix(dtype, *batch, 5, 6)
        close(run(jnp.linalg.matmul, a, b), wide(a) @ wide(b), dtype)


def check_multi_dot(dtype):
    factors = [matrix(dtype, m, n) for m, n in [(4, 5), (5, 6), (6, 3)]]
    found = run(lambda *f: jnp.linalg.multi_dot(f), *factors)
    close(found, np.linalg.multi_dot([wide(f) for f in factors]), dtype)


def check_outer(dtype):
    a, b = matrix(dtype, 4), matrix(dtype, 5)
    close(run(jnp.linalg.outer, a, b), np.outer(wide(a), wide(b)), dtype)


def check_cross(dtype):
    for batch in BATCHES:
        a, b = matrix(dtype, *batch, 3), matrix(dtype, *batch, 3, seed=1)
        close(run(jnp.linalg.cross, a, b), np.cross(wide(a), wide(b)), dtype)


def check_vecdot(dtype):
    for batch in BATCHES:
        a, b = matrix(dtype, *batch, 5), matrix(dtype, *batch, 5, seed=1)
        close(run(jnp.linalg.vecdot, a, b), (np.conj(wide(a)) * wide(b)).sum(-1), dtype)


def check_tensordot(dtype):
    a, b = matrix(dtype, 2, 4, 5), matrix(dtype, 4, 5, 3)
    close(run(jnp.linalg.tensordot, a, b), np.tensordot(wide(a), wide(b)), dtype)


def check_trace(dtype):
    for batch in BATCHES:
        a = matrix(dtype, *batch, 4, 5)
        close(run(jnp.linalg.trace, a), np.trace(wide(a), axis1=-2, axis2=-1), dtype)


def check_diagonal(dtype):
    for batch in BATCHES:
        a = matrix(dtype, *batch, 4, 5)
        close(run(jnp.linalg.diagonal, a), np.diagonal(wide(a), axis1=-2, axis2=-1), dtype)


def check_matrix_transpose(dtype):
    for batch in BATCHES:
        a = matrix(dtype, *batch, 4, 5)
        close(run(jnp.linalg.matrix_transpose, a), np.swapaxes(wide(a), -1, -2), dtype)


# --- jax.scipy.linalg ---


def check_scipy_schur(dtype):
    for n in (1, 6, 40):
        a = matrix(dtype, n, n)
        t, z = run(jsl.schur, a)
        unitary(z, dtype)
        close(wide(z) @ wide(t) @ adjoint(wide(z)), a, dtype)
        close(np.tril(t, -2), np.zeros((n, n)), dtype)
    t, z = run(lambda a: jsl.schur(a, output="complex"), a)
    close(np.tril(t, -1), np.zeros((n, n)), dtype)
    close(wide(z) @ wide(t) @ adjoint(wide(z)), a, dtype)
    assert np.isnan(run(jsl.schur, np.full((3, 3), np.nan, dtype))[0]).all()


def check_scipy_rsf2csf(dtype):
    a = matrix(dtype, 6, 6)
    t, z = run(lambda a: jsl.rsf2csf(*jsl.schur(a)), a)
    close(np.tril(t, -1), np.zeros((6, 6)), dtype)
    close(wide(z) @ wide(t) @ adjoint(wide(z)), a, dtype)


def check_scipy_hessenberg(dtype):
    inputs = batches(lambda *s: (matrix(dtype, *s),), [(n, n) for n in (1, 2, 6, 40)])
    results = each(lambda a: jsl.hessenberg(a, calc_q=True), inputs)
    for (a,), (h, q) in zip(inputs, results, strict=True):
        unitary(q, dtype)
        close(wide(q) @ wide(h) @ adjoint(wide(q)), a, dtype)
        close(np.tril(h, -2), np.zeros(a.shape), dtype)


def check_scipy_lu(dtype):
    inputs = [(matrix(dtype, m, n),) for m, n in [(5, 5), (7, 4), (4, 7), (60, 60)]]
    for (a,), (p, lower, upper) in zip(inputs, each(jsl.lu, inputs), strict=True):
        close(wide(p) @ wide(lower) @ wide(upper), a, dtype)
        expected = scipy.linalg.lu(wide(a))
        close(lower, expected[1], dtype)
        close(upper, expected[2], dtype)


def check_scipy_lu_solve(dtype):
    for batch in BATCHES:
        a, b = regular(dtype, *batch, 6, 6), matrix(dtype, *batch, 6, 2)
        results = for_options(
            lambda a, b, trans: jsl.lu_solve(jsl.lu_factor(a), b, trans=trans), (0, 1, 2), a, b
        )
        operators = (wide(a), np.swapaxes(wide(a), -1, -2), adjoint(wide(a)))
        for operator, found in zip(operators, results, strict=True):
            close(found, np.linalg.solve(operator, wide(b)), dtype)


def check_scipy_cho_solve(dtype):
    for batch, lower in itertools.product(BATCHES, [False, True]):
        a, b = definite(dtype, *batch, 6, 6), matrix(dtype, *batch, 6, 2)
        found = run(lambda a, b, lo=lower: jsl.cho_solve(jsl.cho_factor(a, lower=lo), b), a, b)
        close(found, np.linalg.solve(wide(a), wide(b)), dtype)


def check_scipy_solve(dtype):
    a, b = definite(dtype, 6, 6), matrix(dtype, 6, 2)
    for kind in ("gen", "pos"):
        found = run(lambda a, b, k=kind: jsl.solve(a, b, assume_a=k), a, b)
        close(found, np.linalg.solve(wide(a), wide(b)), dtype, kind)


def check_scipy_solve_triangular(dtype):
    options = list(itertools.product([False, True], ["N", "T", "C"], [False, True]))

    def solve(a, b, option):
        lower, trans, unit = option
        return jsl.solve_triangular(a, b, lower=lower, trans=trans, unit_diagonal=unit)

    for batch in BATCHES:
        a, b = regular(dtype, *batch, 6, 6), matrix(dtype, *batch, 6, 2)
        results = for_options(solve, options, a, b)
        for (lower, trans, unit), found in zip(options, results, strict=True):
            used = np.tril(wide(a)) if lower else np.triu(wide(a))
            if unit:
                np.einsum("...ii->...i", used)[...] = 1
            transposed = np.swapaxes(used, -1, -2)
            operator = {"N": used, "T": transposed, "C": np.conj(transposed)}[trans]
            close(found, np.linalg.solve(operator, wide(b)), dtype, f"{lower} {trans} {unit}")


def check_scipy_qr_pivoting(dtype):
    for m, n in [(6, 6), (7, 4), (4, 7)]:
        a = matrix(dtype, m, n)
        q, r, p = run(lambda a: jsl.qr(a, pivoting=True), a)
        unitary(q, dtype)
        close(wide(q) @ wide(r), a[:, p], dtype)
        np.testing.assert_array_equal(p, scipy.linalg.qr(wide(a), pivoting=True)[2])
    a = matrix(dtype, 2, 3, 5, 4)
    q, r, p = run(lambda a: lax_linalg.qr(a, pivoting=True, full_matrices=False), a)
    close(wide(q) @ wide(r), np.take_along_axis(a, p[..., None, :], -1), dtype)


def check_scipy_qr_multiply(dtype):
    a, c = matrix(dtype, 7, 4), matrix(dtype, 3, 7)
    found, r = run(lambda a, c: jsl.qr_multiply(a, c), a, c)
    q, _ = run(lambda a: jsl.qr(a, mode="economic"), a)
    close(found, wide(c) @ wide(q), dtype)
    close(np.abs(r), np.abs(np.linalg.qr(wide(a), mode="r")), dtype)


def check_scipy_expm(dtype):
    for batch in BATCHES:
        a = matrix(dtype, *batch, 5, 5)
        close(run(jsl.expm, a), scipy.linalg.expm(wide(a)), dtype)


def check_scipy_expm_frechet(dtype):
    a, e = matrix(dtype, 4, 4), matrix(dtype, 4, 4, seed=1)
    found = run(jsl.expm_frechet, a, e)
    for ours, theirs in zip(found, scipy.linalg.expm_frechet(wide(a), wide(e)), strict=True):
        close(ours, theirs, dtype)


def check_scipy_sqrtm(dtype):
    a = definite(dtype, 5, 5)
    close(run(jsl.sqrtm, a), scipy.linalg.sqrtm(wide(a)), dtype)


def check_scipy_funm(dtype):
    a = matrix(dtype, 5, 5)
    found = run(lambda a: jsl.funm(a, jnp.exp, disp=False)[0], a)
    close(found, scipy.linalg.expm(wide(a)), dtype)


def check_scipy_polar(dtype):
    a = matrix(dtype, 6, 4)
    for method in ("qdwh", "svd"):
        u, p = run(lambda a, m=method: jsl.polar(a, method=m), a)
        expected = scipy.linalg.polar(wide(a))
        close(u, expected[0], dtype, method)
        close(p, expected[1], dtype, method)


def check_scipy_solve_sylvester(dtype):
    a, b, q = regular(dtype, 5, 5), regular(dtype, 4, 4), matrix(dtype, 5, 4)
    methods = ("schur", "eigen")
    results = for_options(
        lambda a, b, q, m: jsl.solve_sylvester(a, b, q, method=m), methods, a, b, q
    )
    for method, found in zip(methods, results, strict=True):
        close(found, scipy.linalg.solve_sylvester(wide(a), wide(b), wide(q)), dtype, method)


def check_scipy_eigh_tridiagonal(dtype):
    rng = np.random.default_rng(5)
    d, e = rng.standard_normal(8).astype(real(dtype)), matrix(dtype, 7)
    if dtype.startswith("complex"):
        d = d.astype(dtype)
    full = np.diag(wide(d)) + np.diag(wide(e), 1) + np.diag(np.conj(wide(e)), -1)
    w, v = run(lambda d, e: jsl.eigh_tridiagonal(d, e, eigvals_only=False), d, e)
    close(w, np.linalg.eigvalsh(full), dtype)
    unitary(v, dtype)
    close(full @ wide(v), wide(v) * w, dtype)


# --- jax.lax.linalg ---


def check_lax_triangular_solve(dtype):
    options = list(itertools.product([False, True], repeat=4))
    a = regular(dtype, 2, 5, 5)
    b = matrix(dtype, 2, 5, 5)

    def solve(a, b, option):
        left, lower, transposed, conjugate = option
        return lax_linalg.triangular_solve(
            *(a, b[:, :, :3] if left else b[:, :3]),
            left_side=left,
            lower=lower,
            transpose_a=transposed,
            conjugate_a=conjugate,
        )

    for option, found in zip(options, for_options(solve, options, a, b), strict=True):
        left, lower, transposed, conjugate = option
        operator = np.tril(wide(a)) if lower else np.triu(wide(a))
        operator = np.conj(operator) if conjugate else operator
        operator = np.swapaxes(operator, -1, -2) if transposed else operator
        product = operator @ wide(found) if left else wide(found) @ operator
        close(product, b[:, :, :3] if left else b[:, :3], dtype, f"{option}")


def check_lax_tridiagonal(dtype):
    for batch, lower in itertools.product(BATCHES, [False, True]):
        a = symmetric(dtype, *batch, 7, 7)
        _, d, e, _ = run(lambda a, lo=lower: lax_linalg.tridiagonal(a, lower=lo), a)
        t = np.zeros((*batch, 7, 7))
        for i in range(7):
            t[..., i, i] = d[..., i]
        for i in range(6):
            t[..., i, i + 1] = t[..., i + 1, i] = e[..., i]
        close(np.linalg.eigvalsh(t), np.linalg.eigvalsh(wide(a)), dtype)


def check_lax_tridiagonal_solve(dtype):
    for batch, n in itertools.product(BATCHES, [1, 2, 7]):
        lower, upper = matrix(dtype, *batch, n), matrix(dtype, *batch, n, seed=1)
        d, b = matrix(dtype, *batch, n, seed=2) + 4, matrix(dtype, *batch, n, 2)
        lower[..., 0] = upper[..., -1] = 0
        full = np.zeros((*batch, n, n), wide(d).dtype)
        for i in range(n):
            full[..., i, i] = d[..., i]
        for i in range(n - 1):
            full[..., i + 1, i], full[..., i, i + 1] = lower[..., i + 1], upper[..., i]
        results = for_options(
            lambda *x: lax_linalg.tridiagonal_solve(*x[:-1], perturb_singular=x[-1]),
            *((False, True), lower, d, upper, b),
        )
        for perturb, found in zip((False, True), results, strict=True):
            close(found, np.linalg.solve(full, wide(b)), dtype, f"perturb {perturb}")
    zero = np.zeros(4, dtype)
    found = run(lax_linalg.tridiagonal_solve, zero, zero, zero, np.ones((4, 1), dtype))
    assert np.isnan(found).all()


def check_lax_householder(dtype):
    for batch in BATCHES:
        a, c = matrix(dtype, *batch, 7, 4), matrix(dtype, *batch, 7, 3)
        h, tau = run(lambda a: jnp.linalg.qr(a, mode="raw"), a)
        h = np.swapaxes(h, -1, -2)
        full = np.concatenate([h, np.zeros((*batch, 7, 3), dtype)], -1)
        q = run(lax_linalg.householder_product, full, tau)
        unitary(q, dtype)
        options = list(itertools.product([False, True], repeat=2))

        def multiply(h, tau, c, option):
            left, transposed = option
            target = c if left else jnp.swapaxes(c, -1, -2)
            return lax_linalg.ormqr(h, tau, target, left=left, transpose=transposed)

        results = for_options(multiply, options, h, tau, c)
        for (left, transposed), found in zip(options, results, strict=True):
            target = c if left else np.swapaxes(c, -1, -2)
            used = adjoint(wide(q)) if transposed else wide(q)
            expected = used @ wide(target) if left else wide(target) @ used
            close(found, expected, dtype, f"left {left} transpose {transposed}")


def check_lax_svd_by_qr(dtype):
    qr = lax_linalg.SvdAlgorithm.QR

    def all_kinds(a):
        reduced, full = (lax_linalg.svd(a, algorithm=qr, full_matrices=f) for f in (False, True))
        return reduced, full, lax_linalg.svd(a, algorithm=qr, compute_uv=False)

    inputs = batches(lambda *s: (matrix(dtype, *s),), [(5, 5), (7, 4), (4, 7)])
    for (a,), found in zip(inputs, each(all_kinds, inputs), strict=True):
        for u, s, vh in found[:2]:
            unitary(u, dtype)
            unitary(adjoint(vh), dtype)
            k = min(a.shape[-2:])
            close((wide(u)[..., :k] * s[..., None, :]) @ wide(vh)[..., :k, :], a, dtype)
        close(found[2], s, dtype)


def check_lax_eig_left(dtype):
    for batch in BATCHES:
        a = matrix(dtype, *batch, 6, 6)
        w, left, right = run(
            lambda a: lax_linalg.eig(
                a, compute_left_eigenvectors=True, compute_right_eigenvectors=True
            ),
            a,
        )
        close(adjoint(wide(left)) @ wide(a), w[..., :, None] * adjoint(wide(left)), dtype)
        close(wide(a) @ right, wide(right) * w[..., None, :], dtype)


def check_lax_schur_batched(dtype):
    a = matrix(dtype, 2, 3, 6, 6)
    t, z = run(lax_linalg.schur, a)
    close(wide(z) @ wide(t) @ adjoint(wide(z)), a, dtype)
    (t_only,) = run(lambda a: lax_linalg.schur(a, compute_schur_vectors=False), a)
    close(t_only, t, dtype)


# --- With the rest of JAX ---


def check_gradients(dtype):
    """Derivatives, which use other custom calls than values, against finite differences in numpy."""
    if real(dtype) == "float32":
        return  # finite differences need double precision
    a, direction = definite(dtype, 5, 5), matrix(dtype, 5, 5, seed=1)
    direction = direction + adjoint(direction)
    functions = {
        "slogdet": (lambda x: jnp.linalg.slogdet(x)[1], lambda x: np.linalg.slogdet(x)[1]),
        "cholesky": (
            lambda x: jnp.abs(jnp.linalg.cholesky(x)).sum(),
            lambda x: np.abs(np.linalg.cholesky(x)).sum(),
        ),
        "eigvalsh": (
            lambda x: jnp.linalg.eigvalsh(x)[1],
            lambda x: np.linalg.eigvalsh(x)[1],
        ),
        "svdvals": (lambda x: jnp.linalg.svdvals(x)[1], lambda x: np.linalg.svd(x)[1][1]),
        "solve": (
            lambda x: jnp.real(jnp.linalg.solve(x, jnp.ones(5, dtype))).sum(),
            lambda x: np.real(np.linalg.solve(x, np.ones(5))).sum(),
        ),
    }
    step = 1e-6
    for name, (ours, theirs) in functions.items():
        _, found = run(lambda x, v, f=ours: jax.jvp(f, (x,), (v,)), a, direction)
        expected = (theirs(a + step * direction) - theirs(a - step * direction)) / (2 * step)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7, err_msg=name)
        run(jax.grad(ours), a)


def check_vmap_and_sharding(dtype):
    devices = jax.devices()
    mesh = jax.sharding.Mesh(np.array(devices), ("batch",))
    spread = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("batch"))
    a = definite(dtype, 2 * len(devices), 5, 5)
    on_all = jax.device_put(a, spread)
    found = jax.jit(jnp.linalg.cholesky, out_shardings=spread)(on_all)
    assert len(found.addressable_shards) == len(devices)
    close(jax.device_get(found), np.linalg.cholesky(wide(a)), dtype)
    w, v = jax.device_get(jax.jit(jax.vmap(jnp.linalg.eigh))(on_all))
    close(wide(a) @ v, wide(v) * w[..., None, :], dtype)
    b = matrix(dtype, 2 * len(devices), 5)
    solved = run(jax.vmap(jnp.linalg.solve), on_all, b)
    close(np.einsum("bij,bj->bi", wide(a), solved), b, dtype)
