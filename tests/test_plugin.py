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
