"""Linear algebra on a cluster: every function of `jnp.linalg`, and of `jax.scipy.linalg` and
`jax.lax.linalg` what goes to LAPACK, for four element types, single and batched, against numpy.
The checks are `cases/linalg.py`; one client process runs all of one type. Outside the nightly run
that is so for the first type; the others are checked with batches only, compiled without most of XLA's
optimizations.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable

import pytest
from harness import Cluster, Outcome, run_cases
from run_cases import CASES

CHECKS = re.findall(r"^def check_(\w+)\(", (CASES / "linalg.py").read_text(), re.MULTILINE)
TYPES = ["float32", "float64", "complex64", "complex128"]
NAMES_IN_JAX = "linalg.names_in_jax"
WHOLE = TYPES if os.environ.get("GANGWAY_NIGHTLY") else TYPES[:1]
SHORT = {"LINALG_BATCHED_ONLY": "1", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
Run = Callable[[str], dict[str, Outcome]]


def case_name(check: str, dtype: str) -> str:
    return f"linalg.check_{check}.{dtype}"


@pytest.fixture(scope="session")
def outcomes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, cluster: Cluster
) -> Run:
    """Runs every selected check of an element type, in one client process, the first time."""
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
            env={"JAX_ENABLE_X64": "1", **({} if dtype in WHOLE else SHORT)},
        )

    return run


@pytest.mark.timeout(700)  # the first test of a type runs all of its checks
@pytest.mark.parametrize("dtype", TYPES[:1])
def test_every_function_of_jax_has_a_check(outcomes: Run, dtype: str) -> None:
    outcome = outcomes(dtype)[NAMES_IN_JAX]
    assert not outcome.error, outcome.error
    assert set(outcome.value) <= set(CHECKS), "a function of jnp.linalg without a check"


@pytest.mark.timeout(700)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("check", CHECKS)
def test_linalg(check: str, dtype: str, outcomes: Run) -> None:
    error = outcomes(dtype)[case_name(check, dtype)].error
    assert not error, f"{check} of {dtype}:\n{error}"
