"""Clients with an older jaxlib, each in its own venv, on one cluster: CORE, compared with the same jaxlib's
own CPU backend. Only the nightly run, which may download, collects this file (`collect_ignore`).
"""

from __future__ import annotations

import functools
import subprocess
from collections.abc import Callable

import pytest
from case_runs import Outcome, run_cases
from compare import assert_close
from harness import ROOT, Cluster
from test_jax import CORE

Outcomes = dict[str, Outcome]


@pytest.fixture(scope="module")
def outcomes(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, str], Outcomes]:
    """Outcomes of CORE with a version of JAX on a backend; the first request runs all in one process."""

    @functools.cache
    def run(version: str, backend: str) -> Outcomes:
        made = subprocess.run(
            [str(ROOT / "tools" / "venv.sh"), f"jax-{version}"],
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert made.returncode == 0, made.stderr
        folder = tmp_path_factory.mktemp("cases")
        launcher = [made.stdout.strip()]
        return run_cases(backend, CORE, folder, port=cluster.port, launcher=launcher)

    return run


@pytest.mark.timeout(900)  # the first test of a version makes its venv, and runs all its cases
@pytest.mark.parametrize("case", CORE)
@pytest.mark.parametrize("version", ["0.8", "0.9"])
def test_core(version: str, case: str, outcomes: Callable[[str, str], Outcomes]) -> None:
    ours, theirs = outcomes(version, "gangway")[case], outcomes(version, "cpu")[case]
    for name, found in {"Gangway": ours, "jaxlib's CPU": theirs}.items():
        assert not found.error, f"on {name}, jax {version}:\n{found.error}"
    assert_close(ours.value, theirs.value)
