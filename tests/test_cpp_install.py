"""The client library as a package: a project outside of this repository finds it, builds against it and runs."""

from __future__ import annotations

import pathlib
import subprocess

import pytest
from harness import PATIENCE, ROOT, Cluster
from native_programs import BUILD, check_built

EXPORTED = {
    *("Array", "Callable", "Cluster", "Function", "Mesh", "Program", "Sharding", "Status"),
    *("Connect", "ConnectClient", "ElementBytes", "ToText", "Trace", "TrafficOfProcess"),
}


def ran(*command: str | pathlib.Path) -> str:
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=100 * PATIENCE
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Where it is installed."""
    for target in ("gangway_client_library", "gangway_pjrt_grpc"):
        check_built(target)
    installed = tmp_path_factory.mktemp("installed")
    ran("cmake", "--install", BUILD, "--prefix", installed, "--component", "client")
    return installed


def test_an_outside_project_finds_builds_and_runs(
    prefix: pathlib.Path, cluster: Cluster, tmp_path: pathlib.Path
) -> None:
    project = ROOT / "tests" / "outside_project"
    ran("cmake", "-S", project, "-B", tmp_path, f"-DCMAKE_PREFIX_PATH={prefix}")
    ran("cmake", "--build", tmp_path)
    linked = ran("ldd", tmp_path / "outside")
    assert f"{prefix}/lib/libgangway_client.so" in linked
    assert "absl" not in linked and "protobuf" not in linked and "grpc" not in linked
    assert ran(tmp_path / "outside", cluster.control, cluster.token) == "2 4 3 6 \n"


def test_the_library_exports_the_api_alone(prefix: pathlib.Path) -> None:
    library = prefix / "lib" / "libgangway_client.so"
    for line in ran("nm", "-DC", "--defined-only", library).splitlines():
        name = line.split(maxsplit=2)[2]
        assert name.startswith("gangway::"), name
        part = name.removeprefix("gangway::").replace("[", "(").partition("(")[0]
        assert part.partition("::")[0] in EXPORTED, name
