"""`--plugin cuda` finds the plugin where PyPI's package installs it, and runs it by its own properties.

The tests need no GPU: the plugin is XLA's CPU plugin, which presents itself as the CUDA plugin does
(gangway/device/pjrt/testdata/cuda_like_plugin.cc), in a tree that looks like a Python environment.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable

import numpy as np
import pytest
from faultlib import Console
from harness import ROOT, Cluster
from hosts import Hosts

NewCluster = Callable[..., Cluster]
CUDA_LIKE = ROOT / "build" / "dev" / "gangway" / "device" / "libgangway_cuda_like_plugin.so"


@pytest.mark.parametrize("door", ["ifrt", "pjrt"])
def test_plugin_cuda_is_found_in_the_python_environment_and_runs(
    door: str, new_cluster: NewCluster, tmp_path: pathlib.Path
) -> None:
    packages = tmp_path / "lib" / "python3.12" / "site-packages"
    plugin = packages / "jax_plugins" / "xla_cuda12" / "xla_cuda_plugin.so"
    plugin.parent.mkdir(parents=True)
    plugin.symlink_to(CUDA_LIKE)
    cluster = new_cluster(1, 1, 4, "--plugin", "cuda")
    cluster.environment["VIRTUAL_ENV"] = str(tmp_path)
    cluster.start()
    with Console(cluster, door=door) as client:
        platforms = client.do("result = [d.platform for d in jax.devices()]")
        assert platforms == ["gpu"] * 4  # JAX's name for "cuda"
        assert client.do("result = [d.compute_capability for d in jax.devices()]") == ["9.0"] * 4
        for name in ("gpu", "cuda"):
            assert client.do(f"result = jax.devices({name!r}) == jax.devices()"), name
        assert client.do("result = jax.devices('cpu')[0].platform") == "cpu"
        assert client.do("result = float(jax.jit(lambda x: x + 1, backend='gpu')(1.0))") == 2
        client.do(
            "from jax.sharding import Mesh, NamedSharding, PartitionSpec as P; "
            "s = NamedSharding(Mesh(np.array(jax.devices()), ('d',)), P('d')); "
            "x = jax.device_put(np.arange(64, dtype='float32').reshape(8, 8), s)"
        )
        value = client.do("result = np.asarray(jax.jit(lambda x: (x @ x).sum(0))(x)).tolist()")
    x = np.arange(64, dtype="float32").reshape(8, 8)
    assert value == (x @ x).sum(0).tolist()
    well = cluster.command("doctor", "--plugin", "cuda", "--port", str(cluster.port), timeout_s=30)
    assert str(plugin) in well.stdout, well.stdout


TOLD = "import jax; print(*sorted({d.told_of_memory for d in jax.devices()}), len(jax.devices()))"


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ([], "preallocate 1, memory_fraction 0.75"),
        (
            ["--device-memory-fraction", "0.35", "--no-preallocate"],
            "preallocate 0, memory_fraction 0.35",
        ),
    ],
)
def test_both_workers_of_a_gpu_take_their_share(
    flags: list[str], told: str, new_cluster: NewCluster
) -> None:
    cluster = new_cluster(1, 2, 4, "--plugin", str(CUDA_LIKE), *flags).start()
    with Console(cluster, door="pjrt") as client:
        assert client.do("result = [d.told_of_memory for d in jax.devices()]") == [told] * 8


def test_a_clusters_file_gives_workers_their_share_of_a_gpu(tmp_path: pathlib.Path) -> None:
    hosts = Hosts(
        tmp_path,
        tls=False,
        islands=((4, 4),),
        everywhere=f"plugin = '{CUDA_LIKE}'\ndevice_memory_fraction = 0.4\npreallocate = false\n",
    )
    script = tmp_path / "told.py"
    script.write_text(TOLD)
    try:
        hosts.start_controller()
        hosts.wait_for_token()
        hosts.start_workers()
        hosts.wait_for("controller", "ready: ")
        said = hosts.run("run", "--port", str(hosts.front_door), str(script))
    finally:
        hosts.stop()
    assert said.stdout.strip() == "preallocate 0, memory_fraction 0.40 8", said.stdout + said.stderr


def test_no_visible_gpu_is_an_error_of_up_that_says_what_to_check(new_cluster: NewCluster) -> None:
    cluster = new_cluster(1, 2, 4, "--plugin", str(CUDA_LIKE))
    cluster.environment["CUDA_VISIBLE_DEVICES"] = ""
    result = cluster.up()
    assert result.returncode == 1, result.stdout + result.stderr
    for words in ("No visible GPU devices", str(CUDA_LIKE), "nvidia-smi", "--plugin cpu"):
        assert words in result.stderr, result.stderr
    assert "restart" not in result.stdout, result.stdout


def test_another_number_of_devices_is_an_error_of_up_at_once(new_cluster: NewCluster) -> None:
    result = new_cluster(1, 1, 3, "--plugin", str(CUDA_LIKE)).up()
    assert result.returncode == 1, result.stdout + result.stderr
    assert "has 4 devices, but 3 were declared" in result.stderr, result.stderr
    assert "restart" not in result.stdout, result.stdout


def test_an_absent_cuda_plugin_is_to_be_installed(
    new_cluster: NewCluster, tmp_path: pathlib.Path
) -> None:
    packages = tmp_path / "lib" / "python3.12" / "site-packages"
    packages.mkdir(parents=True)
    cluster = new_cluster(1, 1, 1, "--plugin", "cuda")
    cluster.environment.update(VIRTUAL_ENV=str(tmp_path), PATH="/nothing", HOME=str(tmp_path))
    result = cluster.up()
    assert result.returncode != 0
    assert str(packages) in result.stderr and "pip install 'jax[cuda13]'" in result.stderr, (
        result.stderr
    )
