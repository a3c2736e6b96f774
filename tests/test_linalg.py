"""Linear algebra on a cluster, compared with numpy: every function of `jnp.linalg`, and the functions of
`jax.scipy.linalg` and `jax.lax.linalg` that call LAPACK, for four element types, single and batched.
The checks are in `cases/linalg.py`; one client process runs all checks of one type. Outside the nightly
run, only batches are checked, compiled without most of XLA's optimizations: one function per LAPACK routine, for the
narrowest real and the widest complex type.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

import pytest
from case_runs import Outcome, run_cases
from harness import NIGHTLY, Cluster
from run_cases import CASES

CHECKS = re.findall(r"^def check_(\w+)\(", (CASES / "linalg.py").read_text(), re.MULTILINE)
TYPES = ["float32", "float64", "complex64", "complex128"]
NAMES_IN_JAX = "linalg.names_in_jax"
SHORT = {"LINALG_BATCHED_ONLY": "1", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
# Each calls another LAPACK routine: potrf, geqrf, gesdd, geev, syevd, getrf, gees, gehrd, geqp3, trsm, sytrd,
# gtsv, orgqr.
OF_EACH_ROUTINE = {
    *("cholesky", "qr", "svd", "eig", "eigh", "solve", "scipy_schur", "scipy_hessenberg"),
    *("scipy_qr_pivoting", "lax_triangular_solve", "lax_tridiagonal", "lax_tridiagonal_solve"),
    "lax_householder",
}
RUNS = [
    (check, dtype)
    for check in CHECKS
    for dtype in TYPES
    if NIGHTLY or (dtype in (TYPES[0], TYPES[-1]) and check in OF_EACH_ROUTINE)
]
Run = Callable[[str], dict[str, Outcome]]


def case_name(check: str, dtype: str) -> str:
    return f"linalg.check_{check}.{dtype}"


@pytest.fixture(scope="session")
def outcomes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, cluster: Cluster
) -> Run:
    """The first request for an element type runs all its selected checks in one client process."""
    parameters = [getattr(item, "callspec", None) for item in request.session.items]
    wanted = {(p.params.get("check"), p.params.get("dtype")) for p in parameters if p is not None}

    @functools.cache
    def run(dtype: str) -> dict[str, Outcome]:
        names = [case_name(check, dtype) for check in CHECKS if (check, dtype) in wanted]
        return run_cases(
            "gangway",
            [NAMES_IN_JAX, *names],
            tmp_path_factory.mktemp("linalg"),
            cluster.port,
            timeout_s=600,
            env={"JAX_ENABLE_X64": "1", **({} if NIGHTLY else SHORT)},
        )

    return run


@pytest.mark.timeout(700)  # the first test of a type runs all of its checks
@pytest.mark.parametrize("dtype", TYPES[:1])
def test_every_function_of_jax_has_a_check(outcomes: Run, dtype: str) -> None:
    assert set(CHECKS) >= OF_EACH_ROUTINE
    outcome = outcomes(dtype)[NAMES_IN_JAX]
    assert not outcome.error, outcome.error
    assert set(outcome.value) <= set(CHECKS), "a function of jnp.linalg without a check"


@pytest.mark.timeout(700)
@pytest.mark.parametrize(("check", "dtype"), RUNS)
def test_linalg(check: str, dtype: str, outcomes: Run) -> None:
    error = outcomes(dtype)[case_name(check, dtype)].error
    assert not error, f"{check} of {dtype}:\n{error}"
