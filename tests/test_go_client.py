"""A client that is neither JAX nor Python: examples/go_client loads the plugin through the Go package go-xla. The first
run on a machine downloads Go (70 MB) and the package (7 MB).
"""

from __future__ import annotations

import pathlib
import subprocess
from collections.abc import Callable

import pytest
from harness import PATIENCE, ROOT, Cluster, client_environment

pytestmark = pytest.mark.timeout(900)  # the first test on a machine downloads and compiles
LIBRARY = ROOT / "bin" / "libgangway_pjrt.so"


def built(to: pathlib.Path, *command: str) -> pathlib.Path:
    """What Go makes of the example; the result of `command`."""
    made = subprocess.run(
        [str(ROOT / "tools" / "go.sh"), *command, "-o", str(to), "."],
        cwd=ROOT / "examples" / "go_client",
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert made.returncode == 0, made.stderr
    return to


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return built(tmp_path_factory.mktemp("go") / "go_client", "build")


def run(program: pathlib.Path, port: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(program), str(LIBRARY)],
        env=client_environment(port),
        capture_output=True,
        text=True,
        timeout=30 * PATIENCE,
    )


def test_a_go_program_computes_and_leaves_nothing(
    program: pathlib.Path, new_cluster: Callable[..., Cluster]
) -> None:
    cluster = new_cluster(1, 1, 2).start()

    def compute() -> None:
        ran = run(program, cluster.port)
        assert ran.returncode == 0, ran.stderr
        lines = ran.stdout.splitlines()
        squares = [
            "device 0: x*x+1 = [2 3] [1 2 5 10 17 26]",
            "device 1: x*x+1 = [2 3] [101 122 145 170 197 226]",
        ]
        assert lines[:5] == [
            "platform cpu, 2 devices",
            *squares,
            "device 1: a@b, copied to device 0 = [22 28 49 64]",
            "all 2 devices: sum = [3 30]",
        ]
        assert "does not compile the program: -:1:10" in lines[5]
        assert lines[-2:] == squares  # after the refused program

    with cluster.left_as_found(compute):
        compute()


def test_a_missing_cluster_is_an_error_of_the_go_program(program: pathlib.Path) -> None:
    ran = run(program, 1)
    assert ran.returncode == 1
    assert "no Gangway cluster has left its address" in ran.stderr


def test_executables_may_be_destroyed_after_their_client(
    cluster: Cluster, tmp_path: pathlib.Path
) -> None:
    """As Go's garbage collector does."""
    tested = subprocess.run(
        [str(built(tmp_path / "go_client_test", "test", "-c")), "-test.v"],
        env={**client_environment(cluster.port), "GANGWAY_PJRT_PLUGIN": str(LIBRARY)},
        capture_output=True,
        text=True,
        timeout=60 * PATIENCE,
    )
    assert tested.returncode == 0, tested.stdout[-2000:] + tested.stderr[:2000]
    assert "--- PASS: TestExecutablesMayBeDestroyedAfterTheirClient" in tested.stdout
