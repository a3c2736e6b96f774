"""Clients of the native protocol in C++ (tests/native), and a cluster whose worker starts late (or never:
test_silence), as a JAX client sees it. Each case of a C++ program runs against a cluster that a test here
has started.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
from collections.abc import Callable, Iterator

import pytest
from faultlib import Gate, start_jax
from harness import PATIENCE, Cluster
from native_programs import native
from test_transfers import all_pairs

pytestmark = pytest.mark.faults
NewCluster = Callable[..., Cluster]


def start_case(cluster: Cluster, case: str, suite: str = "NativeE2eTest") -> subprocess.Popen[str]:
    name = {"NativeE2eTest": "native_client", "RandomProgramsE2eTest": "random_programs"}[suite]
    return subprocess.Popen(
        [str(native(f"{name}_e2e_test")), f"--gtest_filter={suite}.{case}"],
        env={
            **os.environ,
            "GANGWAY_TEST_CONTROL": cluster.control,
            "GANGWAY_TEST_FOLDER": str(cluster.folder),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def end_case(cluster: Cluster, process: subprocess.Popen[str], timeout_s: float = 50) -> None:
    """If the case does not end in time, the failure shows the output of `gangway why`."""
    why = ""
    try:
        output, _ = process.communicate(timeout=timeout_s * PATIENCE)
    except subprocess.TimeoutExpired:
        why = (
            f"the case did not end within {timeout_s} s; "
            + cluster.command("why", "--port", str(cluster.port)).stdout
        )
    finally:
        process.kill()
    if why:
        output, _ = process.communicate()
    assert process.returncode == 0 and "[  PASSED  ] 1 test" in output, why + output


def run_case(
    cluster: Cluster, case: str, suite: str = "NativeE2eTest", timeout_s: float = 50
) -> None:
    end_case(cluster, start_case(cluster, case, suite), timeout_s)


@pytest.fixture(
    scope="module",
    params=["in-the-head", pytest.param("separate-schedulers", marks=pytest.mark.nightly)],
)
def islands(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """2 islands of 2 workers of 2 devices."""
    flags = [f"--{request.param}"] if request.param == "separate-schedulers" else []
    running = Cluster(2, 2, 2, "--quarantine", "0", *flags).start()  # workers are killed
    yield running
    running.stop()


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "case",
    ["EqualTheReference_DF_3", "EqualTheReferenceOrNameWhoIsGone_ER_1_ER_2"],
)
def test_random_programs_and_nothing_is_left_of_them_OB_1_OB_2(islands: Cluster, case: str) -> None:
    def open_links() -> (
        None
    ):  # links between workers stay open, and those by which they lend memory, each way
        run_case(islands, "OpenLinks", "RandomProgramsE2eTest", timeout_s=100)
        all_pairs(islands)

    with islands.left_as_found(open_links):
        run_case(islands, case, "RandomProgramsE2eTest", timeout_s=100)


@pytest.mark.parametrize(
    "case",
    [
        "UnknownFreedAndForeignHandlesAreNamed_OB_3",
        "AClientIsToldOfItsOwnSessionsRunsOnly_OB_3",
        "QuestionsBeyondTheirLimitGetNoAnswerAndDoNoHarm",
        "BareFramesReachNothingOfAnotherSession_OB_3",
        "ADataStreamOpensOnlyWithItsSessionsToken_OB_3",
        "DataStreamsReachNothingOfAnotherSession_OB_3",
        "WordsOfOtherRolesDoNothingOnAClientsLinks_OB_3",
        "APeerOfAnotherVersionIsToldBoth",
        "WithoutTheClustersTokenNobodyIsWelcome",
        "ATokenOpensItsOwnRoleOnly_SE_1",
        "AClientOfAServerOfAnotherVersionIsToldBoth",
    ],
)
def test_native_clients(cluster: Cluster, case: str) -> None:
    with cluster.left_as_found():
        run_case(cluster, case)


def test_native_clients_of_a_killed_worker(new_cluster: NewCluster) -> None:
    cluster = new_cluster(1, 1, 2).start()
    with cluster.left_as_found():
        run_case(cluster, "AKilledWorkerIsARecordOnItsArrays_ER_1")
        run_case(cluster, "ATokenOpensNothingAfterItsSession_OB_2")


def test_a_jax_client_that_waits_goes_on_when_the_worker_comes(
    new_cluster: NewCluster, tmp_path: pathlib.Path
) -> None:
    cluster = new_cluster(1, 2, 1, "--session-wait", "30")
    gate = Gate(cluster, tmp_path, 1)
    with cluster.starting():
        gate.wait_held()
        process = start_jax(cluster)
        cluster.wait_for_words("opens for jax")
        assert process.poll() is None
        gate.open()
        output, _ = process.communicate(timeout=30 * PATIENCE)
        assert process.returncode == 0 and "6" in output.splitlines(), output
