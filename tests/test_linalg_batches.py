"""Batched linear algebra whose batch lies over a mesh of several workers: each device computes its own matrices, with the
bits of one device alone, and no bytes move. In other places of a program, and for batches that cannot be cut, the values
stay right.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator

import pytest
from harness import NIGHTLY, Cluster, output_of_client

SETUP = """
import json, re, gangway, jax, jax.numpy as jnp, numpy as np, jax.lax.linalg as lla
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
jax.config.update("jax_enable_x64", True)
gangway.connect()
mesh = Mesh(np.array(jax.devices()), ("b",))
grid = Mesh(np.array(jax.devices()).reshape(4, 2), ("b", "c"))
def place(x, spec, mesh=mesh): return jax.device_put(x, NamedSharding(mesh, spec))
def moves(text): return sorted(set(re.findall(r"(?:all|collective|reduce)-\\w+(?=\\()", text)))
def matrices(dtype, *shape):
    rng = np.random.default_rng(len(shape))
    x = rng.standard_normal(shape)
    if np.issubdtype(dtype, np.complexfloating): x = x + 1j * rng.standard_normal(shape)
    return x.astype(dtype)
def definite(dtype, *shape):
    x = matrices(dtype, *shape)
    return x @ np.conj(np.swapaxes(x, -1, -2)) + np.eye(shape[-1], dtype=dtype)
def alone(f, *xs):
    return jax.tree.leaves(jax.jit(f)(*(jax.device_put(x, jax.devices()[0]) for x in xs)))
def check(f, *xs, spec=P("b"), over=mesh, out=None, expected=None):
    # What moves, whether each result has the bits of one device (or is close to them), and how it lies.
    placed = [place(x, spec, over) for x in xs]
    compiled = jax.jit(f, out_shardings=out).lower(*placed).compile()
    found = jax.tree.leaves(compiled(*placed))
    pairs = [(np.asarray(a), np.asarray(b)) for a, b in zip(found, alone(expected or f, *xs))]
    same = "same" if all(np.array_equal(a, b, equal_nan=True) for a, b in pairs) else "close"
    if not all(np.allclose(a, b, rtol=1e-3, atol=1e-3) for a, b in pairs): same = "wrong"
    return moves(compiled.as_text()), same, [str(x.sharding.spec) for x in found]
"""
FUNCTIONS = {
    "svd": "lambda x, y: jnp.linalg.svd(x)",
    "eigh": "lambda x, y: jnp.linalg.eigh(x)",
    "eig": "lambda x, y: jnp.linalg.eig(x)",
    "qr": "lambda x, y: jnp.linalg.qr(x)",
    "qr with pivots": "lambda x, y: lla.qr(x, pivoting=True)",
    "cholesky": "lambda x, y: jnp.linalg.cholesky(x)",
    "lu": "lambda x, y: lla.lu(x)",
    "solve": "lambda x, y: jnp.linalg.solve(x, y)",
    "triangular_solve": "lambda x, y: lla.triangular_solve(x, y, left_side=True, lower=True)",
    "tridiagonal": "lambda x, y: lla.tridiagonal(x)",
    "tridiagonal_solve": "lambda x, y: lla.tridiagonal_solve(x[:, 0], x[:, 1] + 9, x[:, 2], y)",
    "schur": "lambda x, y: jax.vmap(lla.schur)(x)",
    "hessenberg": "lambda x, y: lla.hessenberg(x)",
}
# A function's rule is one for all types; its routine has a name for each. Real ones are in the other tests.
TYPES = ["float32", "float64", "complex64", "complex128"] if NIGHTLY else ["complex128"]


@pytest.fixture(scope="module", params=["", "xla"] if NIGHTLY else [""])
def island(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Four workers of two devices; with the device runtime's own collectives, one of eight."""
    running = Cluster(1, 1, 8, "--collectives", "xla") if request.param else Cluster(1, 4, 2)
    yield running.start()
    running.stop()


def run(cluster: Cluster, text: str, door: str = "pjrt") -> object:
    script = SETUP + textwrap.dedent(text)
    return json.loads(output_of_client(script, cluster.port, door, timeout_s=240))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("dtype", TYPES)
def test_no_function_moves_a_batch(island: Cluster, dtype: str) -> None:
    functions = ", ".join(f"{name!r}: {text}" for name, text in FUNCTIONS.items())
    found = run(
        island,
        f"""
        x, y = definite("{dtype}", 16, 4, 4), matrices("{dtype}", 16, 4, 3)
        print(json.dumps({{name: check(f, x, y) for name, f in {{{functions}}}.items()}}))
        """,
    )
    assert isinstance(found, dict) and set(found) == set(FUNCTIONS)
    for name, (moved, same, specs) in found.items():
        assert (moved, same) == ([], "same"), (name, moved, same)
        assert all(spec.startswith("P('b'") for spec in specs), (name, specs)


def test_the_other_door_is_served_too(island: Cluster) -> None:
    found = run(
        island,
        "print(json.dumps(check(lambda x: jnp.linalg.svd(x), matrices('float32', 16, 4, 4))[:2]))",
        "ifrt",
    )
    assert found == [[], "same"]


def test_batches_of_several_dimensions_and_what_else_is_cut(island: Cluster) -> None:
    found = run(
        island,
        """
        svd, eigh = lambda x: jnp.linalg.svd(x), lambda x: jnp.linalg.eigh(x)
        one, two = definite("float32", 16, 4, 4), definite("float32", 4, 6, 4, 4)
        whole = NamedSharding(grid, P())
        scanned = lambda x: jax.lax.scan(lambda c, _: (jnp.linalg.qr(c)[0] + 1, None), x, None, length=3)[0]
        branch = lambda x: jax.lax.cond(x.sum() > 0, jnp.linalg.inv, lambda x: x, x)
        inside = lambda x: jax.shard_map(lambda s: jnp.linalg.cholesky(s), mesh=grid, in_specs=P("b"),
                                         out_specs=P("b"), axis_names={"b"})(x)
        print(json.dumps({
            "both": check(svd, two, spec=P("b", "c"), over=grid),
            "the first": check(eigh, two, spec=P("b"), over=grid),
            "the second": check(eigh, two, spec=P(None, "c"), over=grid),
            "two axes": check(eigh, one, spec=P(("c", "b")), over=grid),
            "rows, too": check(eigh, one, spec=P("b", "c"), over=grid),
            "only rows": check(eigh, one, spec=P(None, "c"), over=grid),
            "whole results": check(eigh, one, spec=P("b"), over=grid, out=whole),
            "scan": check(scanned, one),
            "cond": check(branch, one),
            "shard_map": check(inside, one, over=grid, expected=jnp.linalg.cholesky),
            "grad": check(jax.grad(lambda x: jnp.linalg.eigh(x)[0].sum()), one),
            "mixed": check(lambda x: jnp.linalg.inv(x) @ x[::-1], one),
        }))
        """,
    )
    assert isinstance(found, dict)
    for name, (moved, same, _) in found.items():
        # Sums and products of matrices are compiled differently for one device.
        assert same == "same" or (same == "close" and name in ("grad", "mixed")), name
        if name in ("both", "the first", "the second", "two axes", "scan", "shard_map", "grad"):
            assert moved == [], (name, moved)
    assert found["rows, too"][0] == ["all-gather"]  # of the rows, within each part of the batch
    assert "all-gather" in found["whole results"][0]


def test_a_batch_that_is_not_divided_evenly(island: Cluster) -> None:
    found = run(
        island,
        """
        def f(x):
            x = jax.lax.with_sharding_constraint(x + 0, NamedSharding(mesh, P("b")))
            return jnp.linalg.svd(x, compute_uv=False)
        x = matrices("float32", 12, 4, 4)
        found = jax.jit(f)(place(x, P()))
        print(json.dumps(bool(np.allclose(found, np.linalg.svd(x, compute_uv=False), atol=1e-5))))
        """,
    )
    assert found is True
