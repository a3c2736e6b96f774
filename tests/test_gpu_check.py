"""tools/gpu_check.sh of the kit that `make gpu-kit` makes, rehearsed in a bare Debian 13 with the JAX of a machine with a
GPU: with XLA's CPU plugin in the GPU's place, and with the CUDA plugin, which finds no GPU. It builds everything in
release mode, unless GANGWAY_GPU_KIT names a kit. Needs root, and the mirrors of Debian and of Python packages.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
from typing import Any

import pytest
from harness import PATIENCE, ROOT

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.timeout(3 * 3600),
    pytest.mark.skipif(os.geteuid() != 0, reason="a bare Debian is made by root only"),
]

CPU_PLUGIN = ROOT / ".deps" / "xla_cpu" / "pjrt_c_api_cpu_plugin.so"
LIMIT_S = 8 * 60  # of all steps
STEPS = {
    "versions": 2,
    "conformance": 2,
    "in-process JAX": 7,
    "one worker by pjrt": 20,
    "speeds": 7,
    "two workers on one GPU": 5,
    "over budget": 3,
    "two clients": 4,
    "one worker by ifrt": 15,
    "pypjrt": 1,
}  # and how many rows each has at least

CLUSTERS = [
    *("one worker by pjrt", "speeds", "two workers on one GPU", "over budget", "two clients"),
    "one worker by ifrt",
]


@pytest.fixture(scope="module")
def kit() -> pathlib.Path:
    if given := os.environ.get("GANGWAY_GPU_KIT"):
        return pathlib.Path(given)
    built = subprocess.run(
        [ROOT / "tools" / "gpu_kit.sh"], capture_output=True, text=True, timeout=2.5 * 3600
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return ROOT / "build" / "gpu-kit"


@pytest.fixture(scope="module")
def python() -> pathlib.Path:
    made = subprocess.run(
        [ROOT / "tools" / "venv.sh", "gpu-rehearsal", "trixie"],
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert made.returncode == 0, made.stdout + made.stderr
    return pathlib.Path(made.stdout.split()[-1])


def check(
    kit: pathlib.Path, python: pathlib.Path, folder: pathlib.Path, *arguments: str | pathlib.Path
) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """gpu_check.sh in a bare Debian 13 that sees the kit, the venv and `folder`; and its gpu.json."""
    there = folder / "kit"
    shutil.copytree(kit, there)
    passed = ("HOME", "GANGWAY_CACHE")
    ran = subprocess.run(
        [
            *(ROOT / "tools" / "debian_root.sh", "trixie", "env"),
            f"PATH={python.parent}:/usr/bin:/bin",
            *(there / "gpu_check.sh", folder / "out", *arguments),
        ],
        env={
            **{name: os.environ[name] for name in ("PATH", *passed) if name in os.environ},
            "GANGWAY_ROOT_BINDS": f"{folder}:{python.parent.parent}",
        },
        capture_output=True,
        text=True,
        timeout=LIMIT_S * PATIENCE,
    )
    found = json.loads((folder / "out" / "gpu.json").read_text())
    table = (folder / "out" / "gpu.md").read_text().splitlines()
    assert sum(line.startswith("| ") for line in table) == len(found["rows"]) + 1, table
    return ran, found


def test_every_step_passes_on_the_cpu_plugin(
    kit: pathlib.Path, python: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    plugin = tmp_path / "plugin.so"
    shutil.copy(CPU_PLUGIN, plugin)
    ran, found = check(kit, python, tmp_path, plugin)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert list(found["seconds"]) == list(STEPS)
    for step, least in STEPS.items():
        rows = [row for row in found["rows"] if row["step"] == step]
        assert len(rows) >= least, (step, rows)
        assert {row["verdict"] for row in rows} <= {"ok", "refused", "in-process"}, rows


def test_without_a_gpu_each_step_says_so(
    kit: pathlib.Path, python: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    ran, found = check(kit, python, tmp_path, "cuda")
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert list(found["seconds"]) == list(STEPS), "a failed step does not end the others"
    rows = [row for row in found["rows"] if row["verdict"] == "FAILED"]
    assert {row["step"] for row in rows} == set(STEPS), rows
    clusters = [row["step"] for row in rows if row["what"] == "gangway up"]
    assert clusters == CLUSTERS, rows
    for row in rows:
        if row["what"] in ("gangway up", "the plugin opens"):
            assert "No visible GPU devices" in row["seen"] and "nvidia-smi" in row["seen"], row
    plain = [row["seen"] for row in rows if row["step"] == "in-process JAX"]
    assert len(plain) == 2 and all("not of the backend gpu" in seen for seen in plain), plain
    assert sum(found["seconds"].values()) < 120 * PATIENCE, found["seconds"]
