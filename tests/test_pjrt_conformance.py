"""The conformance suite of the PJRT C API (tests/native/conformance), on Gangway's plugin and on XLA's plugin for CPUs in
the suite's own process (nightly: nothing of Gangway runs there), and the table of functions in the documentation.
"""

from __future__ import annotations

import os
import re
import subprocess

import pytest
from harness import PATIENCE, ROOT, Cluster, client_environment
from native_programs import native

GANGWAY = os.environ.get("GANGWAY_PJRT_PLUGIN", str(ROOT / "bin" / "libgangway_pjrt.so"))
CPU = os.environ.get(
    "GANGWAY_CPU_PLUGIN", str(ROOT / ".deps" / "xla_cpu" / "pjrt_c_api_cpu_plugin.so")
)


def run(plugin: str, library: str, environment: dict[str, str], *arguments: str) -> str:
    ran = subprocess.run(
        [str(native("pjrt_conformance_e2e_test")), *arguments],
        env={
            **environment,
            "GANGWAY_CONFORMANCE_PLUGIN": plugin,
            "GANGWAY_TEST_PLUGIN": library,
        },
        capture_output=True,
        text=True,
        errors="replace",
        timeout=50 * PATIENCE,
    )
    assert ran.returncode == 0, ran.stdout[-8000:] + ran.stderr[-4000:]
    return ran.stdout


def test_gangways_plugin(cluster: Cluster) -> None:
    environment = client_environment(cluster.port, "pjrt")
    said = []

    def suite() -> None:
        said.append(run("gangway", GANGWAY, environment))

    with cluster.left_as_found(suite):
        suite()
    assert "[  PASSED  ]" in said[1] and "SKIPPED" not in said[1], said[1]


@pytest.mark.nightly  # nothing of Gangway runs
def test_the_cpu_plugin() -> None:
    """It says what PJRT does. The pool of threads is as large as a worker's: its collectives need one for each device."""
    said = run("cpu", CPU, {**os.environ, "NPROC": "64", "TF_CPP_MIN_LOG_LEVEL": "3"})
    passed = re.search(r"\[  PASSED  \] (\d+) tests", said)
    assert passed and int(passed[1]) > 80, said


def documented() -> dict[str, str]:
    """The two tables of docs/reference/pjrt.md: functions by their common beginning, served and not."""
    text = (ROOT / "docs" / "reference" / "pjrt.md").read_text()
    states = {}
    for head, state in (("served", "served"), ("not served", "unimplemented")):
        table = re.search(
            rf"^\| `PJRT_\.\.\.` \| {head} \|.*\n\|---\|.*\n((?:\|.*\n)+)", text, re.M
        )
        assert table, f"docs/reference/pjrt.md has no table of functions that are {head}"
        for row in table[1].splitlines():
            beginning, names = (cell.strip() for cell in row.split("|")[1:3])
            for name in re.findall(r"[A-Z]\w+", re.sub(r"\([^)]*\)", "", names)):
                function = "PJRT_" + beginning.strip("`") + name
                assert function not in states, f"{function} is in the tables twice"
                states[function] = state
    return states


def test_the_table_of_functions_is_the_plugins() -> None:
    said = run("gangway", GANGWAY, {**os.environ}, "--states")
    assert documented() == dict(line.split() for line in said.splitlines())
