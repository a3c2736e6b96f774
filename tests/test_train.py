"""The training example of the demo: its losses through Gangway equal those of the plugin alone, by either door."""

from __future__ import annotations

import pathlib
import subprocess
from collections.abc import Callable

import pytest
from case_runs import reference_training
from harness import GANGWAY, NIGHTLY, PATIENCE, ROOT, Cluster
from hosts import Hosts

STEPS = 12
WAYS: dict[str, list[str]] = {  # a kind's part: options of `gangway up`
    "": [],
    "tls": [],
    "streams": ["--shared-memory", "0"],
    "xla": ["--collectives", "xla"],
}
FLAGS = ["--steps", str(STEPS), "--batch", "4", "--seed", "3", "--sample", "8"]
SCRIPT = ROOT / "examples" / "train_lm.py"
# Islands x workers x devices, perhaps over TLS, without shared memory, or with XLA's collectives inside of a worker,
# the door, perhaps the mesh and the seed of its devices' order. Over several islands a mesh is inside a worker, else
# over all workers of the island.
KINDS = ["1x4x2-pjrt-4x2-7"]
if NIGHTLY:
    KINDS += ["1x1x8-ifrt", "1x1x8-pjrt", "1x4x2-ifrt"]
    KINDS += ["2x2x2-ifrt", "2x2x2-pjrt", "2x2x2-tls-pjrt"]
    KINDS += ["1x8x1-ifrt", "1x8x1-pjrt-4x2-7", "1x2x4-ifrt", "1x2x4-pjrt-4x2-7"]
    KINDS += ["1x1x8-xla-ifrt", "1x1x8-xla-pjrt-4x2-7"]
    ways = ["ifrt", "pjrt", "streams-ifrt", "streams-pjrt", "tls-pjrt"]
    meshes = ["8x1", "4x2", "2x4", "1x8", "4x2-7"]
    KINDS += [
        kind for way in ways for mesh in meshes if (kind := f"1x4x2-{way}-{mesh}") not in KINDS
    ]


def train_over_tls(
    folder: pathlib.Path, islands: list[list[int]], flags: list[str]
) -> subprocess.CompletedProcess[str]:
    """Each worker on a host of its own, each process started by hand, without a front door."""
    hosts = Hosts(folder, tls=True, islands=islands, schedulers=True)
    hosts.start_controller()
    try:
        hosts.start_schedulers()
        hosts.start_workers()
        hosts.wait_for("controller", "ready: ")
        return subprocess.run(
            [str(GANGWAY), "run", *hosts.connect_flags(), str(SCRIPT), *flags],
            capture_output=True,
            text=True,
            timeout=150 * PATIENCE,
        )
    finally:
        hosts.stop()


@pytest.mark.timeout(400)
@pytest.mark.parametrize("trained_on", KINDS)
def test_losses_are_bitwise_those_of_the_plugin_alone(
    trained_on: str, new_cluster: Callable[..., Cluster], tmp_path: pathlib.Path
) -> None:
    parts = trained_on.split("-")
    islands, workers, devices = map(int, parts.pop(0).split("x"))
    way = parts.pop(0) if parts[0] in WAYS else ""
    door, mesh, shuffle = (*parts, "", "")[:3]
    count = devices if islands > 1 else workers * devices
    flags = [*FLAGS, "--devices", str(count)]
    flags += ["--mesh", mesh] if mesh else []
    flags += ["--shuffle", shuffle] if shuffle else []
    ours, plot = tmp_path / "ours", tmp_path / "loss.png"
    outputs = ["--losses", str(ours), "--out", str(plot)]
    if way == "tls":
        through = train_over_tls(tmp_path, [[devices] * workers] * islands, [*flags, *outputs])
    else:
        cluster = new_cluster(islands, workers, devices, *WAYS[way]).start()
        through = cluster.command(
            *["run", "--port", str(cluster.port), "--door", door, str(SCRIPT), *flags, *outputs],
            timeout_s=150,
        )
    assert through.returncode == 0, through.stdout + through.stderr
    assert plot.read_bytes().startswith(b"\x89PNG")
    alone = reference_training(flags, count, tmp_path)
    expected = alone.losses
    assert len(expected) == STEPS
    assert float.fromhex(expected[-1]) < float.fromhex(expected[0])
    for step, (a, b) in enumerate(zip(ours.read_text().split(), expected, strict=True)):
        assert a == b, f"step {step}: {float.fromhex(a)} through Gangway, {float.fromhex(b)} alone"
    sampled = [text.split("-" * 100)[1] for text in (through.stdout, alone.output)]
    assert sampled[0] == sampled[1]
