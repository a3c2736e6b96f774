"""Which door scripts take: by flag, by argument, by GANGWAY_DOOR, and by default. How each door works is tested in the
files of its name.
"""

from __future__ import annotations

import importlib.metadata
import pathlib
import subprocess
import sys

import pytest
from harness import ROOT, Cluster, free_port, run_client

sys.path.append(str(ROOT / "python"))

from gangway import _door

NAMES = "import jax; print(jax.devices()[0].client.runtime_type.split('/')[0])\n"
RUNTIME = {"ifrt": "proxy", "pjrt": "pjrt_ifrt"}


@pytest.fixture
def script(tmp_path: pathlib.Path) -> str:
    path = tmp_path / "script.py"
    path.write_text(NAMES)
    return str(path)


def run(cluster: Cluster, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return cluster.command("run", *arguments, env={"GANGWAY_DOOR": "", **environment})


def connect(
    port: int, arguments: str = "", text: str = NAMES, **environment: str
) -> subprocess.CompletedProcess[str]:
    script = f"import gangway; gangway.connect({arguments})\n{text}"
    return run_client(script, port, "", environment)


def took(ran: subprocess.CompletedProcess[str]) -> str:
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout.strip()


def test_run_takes_the_plugin(cluster: Cluster, script: str) -> None:
    ran = run(cluster, script)
    assert took(ran) == RUNTIME["pjrt"]
    assert ran.stderr == ""


@pytest.mark.parametrize("door", ["ifrt", "pjrt"])
@pytest.mark.parametrize("variable", ["", "ifrt", "pjrt"])
def test_the_flag_beats_the_variable(
    cluster: Cluster, script: str, door: str, variable: str
) -> None:
    assert took(run(cluster, "--door", door, script, GANGWAY_DOOR=variable)) == RUNTIME[door]


def test_the_variable_beats_the_default(cluster: Cluster, script: str) -> None:
    assert took(run(cluster, script, GANGWAY_DOOR="ifrt")) == RUNTIME["ifrt"]
    assert took(connect(cluster.port, GANGWAY_DOOR="ifrt")) == RUNTIME["ifrt"]


def test_connect_takes_the_plugin(cluster: Cluster) -> None:
    assert took(connect(cluster.port)) == RUNTIME["pjrt"]
    assert took(connect(cluster.port, 'door="ifrt"', GANGWAY_DOOR="pjrt")) == RUNTIME["ifrt"]


@pytest.mark.parametrize("door", ["ifrt", "pjrt"])
def test_children_and_connect_in_a_script_take_its_door(
    cluster: Cluster, tmp_path: pathlib.Path, door: str
) -> None:
    path = tmp_path / "script.py"
    path.write_text(
        f"import subprocess, sys, gangway\nassert len(gangway.connect()) == 8\n{NAMES}"
        f"sys.stdout.flush()\nsys.exit(subprocess.run([sys.executable, '-c', {NAMES!r}]).returncode)"
    )
    assert took(run(cluster, "--door", door, str(path))).split() == [RUNTIME[door]] * 2


def test_without_the_plugin(cluster: Cluster, script: str, tmp_path: pathlib.Path) -> None:
    none = {"GANGWAY_PJRT_PLUGIN": str(tmp_path / "none.so")}
    assert took(run(cluster, script, **none)) == RUNTIME["ifrt"]
    assert took(connect(cluster.port, **none)) == RUNTIME["ifrt"]
    refused = run(cluster, "--door", "pjrt", script, **none)
    assert refused.returncode == 2, refused.stdout + refused.stderr
    assert "libgangway_pjrt.so is not at" in refused.stderr and "none.so" in refused.stderr
    refused = connect(cluster.port, 'door="pjrt"', **none)
    assert "libgangway_pjrt.so is not at" in refused.stderr


def test_an_unknown_door(cluster: Cluster, script: str) -> None:
    refused = run(cluster, "--door", "grpc", script)
    assert refused.returncode not in (0, 1, 2), refused.stdout + refused.stderr
    assert "--door" in refused.stderr and "grpc not in {pjrt,ifrt}" in refused.stderr
    refused = run(cluster, script, GANGWAY_DOOR="grpc")
    assert refused.returncode == 2, refused.stdout + refused.stderr
    assert refused.stderr == "gangway run: GANGWAY_DOOR='grpc' is not one of ifrt, pjrt\n"
    refused = connect(cluster.port, 'door="grpc"')
    assert "ValueError: door='grpc' is not one of ifrt, pjrt" in refused.stderr
    refused = connect(cluster.port, GANGWAY_DOOR="grpc")
    assert "ValueError: GANGWAY_DOOR='grpc' is not one of ifrt, pjrt" in refused.stderr


def test_no_cluster_is_the_same_error_by_default() -> None:
    refused = connect(free_port())
    assert "NothingListeningError: no Gangway cluster listens on" in refused.stderr


def test_the_cluster_says_how_many_devices_it_has(cluster: Cluster) -> None:
    assert (cluster.folder / "devices").read_text().strip() == "8"


def test_the_rule(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    monkeypatch.setenv("GANGWAY_STATE_DIR", str(tmp_path))
    library, folder = tmp_path / "plugin.so", tmp_path / "7"
    monkeypatch.setenv("GANGWAY_PJRT_PLUGIN", str(library))
    folder.mkdir()
    library.write_text("")
    for jaxlib, name, text, door in [
        ("0.10.2", "devices", "32", "ifrt"),  # no address: another user's cluster, or none
        ("0.10.2", "control", "unix:x", "pjrt"),
        ("0.10.2", "devices", "33", "ifrt"),
        ("0.12.0.1", "devices", "33", "ifrt"),
        (
            "0.13.0",
            "devices",
            "33",
            "pjrt",
        ),  # its IFRT client may write programs too new for the runtime
    ]:
        monkeypatch.setattr(importlib.metadata, "version", lambda _, found=jaxlib: found)
        (folder / name).write_text(text + "\n")
        assert _door.default_door(7) == door, (jaxlib, name, text)
    library.unlink()
    assert _door.default_door(7) == "ifrt"
