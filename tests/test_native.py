"""Clients of the native protocol in C++ (tests/native), and clusters whose worker starts late or never,
as native and JAX clients see them. Each case of a C++ program runs against a cluster that a test here
has started.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
from collections.abc import Callable, Iterator

import pytest
from faultlib import Gate, start_jax
from harness import NATIVE_PROGRAMS, PATIENCE, Cluster, wait_for

pytestmark = pytest.mark.faults
NewCluster = Callable[..., Cluster]


def start_case(cluster: Cluster, case: str, suite: str = "NativeE2eTest") -> subprocess.Popen[str]:
    name = {"NativeE2eTest": "native_client", "RandomProgramsE2eTest": "random_programs"}[suite]
    program = NATIVE_PROGRAMS / f"{name}_e2e_test"
    assert program.exists(), f"{program} is missing: build it first (make)"
    return subprocess.Popen(
        [str(program), f"--gtest_filter={suite}.{case}"],
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


@pytest.fixture(scope="module", params=["in-the-head", "separate-schedulers"])
def islands(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """2 islands of 2 workers of 2 devices."""
    flags = [f"--{request.param}"] if request.param == "separate-schedulers" else []
    running = Cluster(2, 2, 2, *flags).start()
    yield running
    running.stop()


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "case",
    ["EqualTheReference_DF_3", "EqualTheReferenceOrNameWhoIsGone_ER_1_ER_2"],
)
def test_random_programs_and_nothing_is_left_of_them_OB_1_OB_2(islands: Cluster, case: str) -> None:
    def open_links() -> None:  # links between workers stay open
        run_case(islands, "OpenLinks", "RandomProgramsE2eTest", timeout_s=100)

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
        "APeerOfAnotherVersionIsToldBoth",
        "WithoutTheClustersTokenNobodyIsWelcome",
        "ATokenOpensItsOwnRoleOnly_SE_1",
        "AClientOfAServerOfAnotherVersionIsToldBoth",
    ],
)
def test_native_clients(cluster: Cluster, case: str) -> None:
    with cluster.left_as_found():
        run_case(cluster, case)


def test_a_killed_worker_is_a_record_to_a_native_client_that_goes_on_ER_1(
    new_cluster: NewCluster,
) -> None:
    cluster = new_cluster(1, 1, 2).start()
    with cluster.left_as_found():
        run_case(cluster, "AKilledWorkerIsARecordOnItsArrays_ER_1")


def end_refused_naming_the_absent(process: subprocess.Popen[str]) -> None:
    output, _ = process.communicate(timeout=30 * PATIENCE)
    assert process.returncode == 1, output
    last = output.strip().splitlines()[-1]
    assert "island0/worker1" in last and "island0/worker0" not in last, output
    assert "gangway status" in last, output


@pytest.mark.alone
@pytest.mark.timeout(150)
def test_a_worker_absent_at_start_is_named_and_awaited_TM_1(
    new_cluster: NewCluster, tmp_path: pathlib.Path
) -> None:
    cluster = new_cluster(1, 2, 1, "--session-wait", "2", "--ready-limit", "120")
    gate = Gate(cluster, tmp_path, 1)

    def all_but_one() -> bool:
        states = [worker["state"] for worker in cluster.workers()]
        return states == ["up", "down"] and cluster.status()["compiler"]["state"] == "up"

    def refuse_both() -> None:
        jax = start_jax(cluster)
        run_case(cluster, "AnAbsentWorkerIsNamedWithinTheDeadline_TM_1")
        end_refused_naming_the_absent(jax)

    with cluster.starting():
        gate.wait_held()
        wait_for("all processes but the late worker up", all_but_one, 20)
        with cluster.left_as_found(first=refuse_both):
            refuse_both()
        native = start_case(cluster, "AClientThatWaitsGoesOnWhenTheWorkerComes")
        cluster.wait_for_words("opens for AClientThatWaits")
        gate.open()  # while the client waits
        end_case(cluster, native)
        output, _ = start_jax(cluster).communicate(timeout=30 * PATIENCE)
        assert "6" in output.splitlines(), output  # jaxlib may log a cancelled call as it exits


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


@pytest.mark.alone
def test_work_for_a_worker_that_stays_away_ends_naming_it_TM_1(
    new_cluster: NewCluster, tmp_path: pathlib.Path
) -> None:
    cluster = new_cluster(1, 1, 1, "--worker-wait", "2")
    gate = Gate(cluster, tmp_path, 0)
    gate.open()
    cluster.start()
    with cluster.left_as_found():
        gate.shut()
        run_case(cluster, "WorkForAWorkerThatStaysAwayEndsNamingIt_TM_1")
        gate.open()
