"""Devices that are looked up by the names which they and their client give themselves, as libraries do."""

from __future__ import annotations

import pathlib
import subprocess
from collections.abc import Iterator

import pytest
from faultlib import Console
from harness import GANGWAY, PATIENCE, Cluster, client_environment

LOOKUPS = [
    "jax.devices(jax.default_backend())",
    "jax.local_devices(backend=jax.default_backend())",
    "jax.devices(jax.devices()[0].platform)",
    "jax.devices(jax.devices()[0].client.platform)",
    "get_backend(jax.devices()[0].platform).devices()",
    "jax.devices('cpu')",
]


@pytest.fixture(scope="module", params=["pjrt", "ifrt"])
def console(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[Console]:
    with Console(cluster, door=request.param) as opened:
        opened.do("import jax, jax.numpy as jnp, numpy as np")
        opened.do("from jax.extend.backend import get_backend")
        yield opened


@pytest.mark.parametrize("lookup", LOOKUPS)
def test_a_lookup_by_name_finds_the_clusters_devices(console: Console, lookup: str) -> None:
    assert console.do(f"result = list({lookup}) == list(jax.devices())"), lookup


def test_a_program_runs_where_its_backends_name_leads(console: Console) -> None:
    console.do("name, all = jax.default_backend(), set(jax.devices())")
    console.do("y = jax.jit(lambda x: x + 1, backend=name)(np.ones(3, np.float32))")
    assert console.do("result = y.devices() <= all")
    assert console.do("result = jax.device_count(name) == len(all)")
    console.do("with jax.default_device(name): z = jnp.ones(3)")
    assert console.do("result = z.devices() <= all")
    assert console.do("result = any(a is z for a in jax.live_arrays(name))")


def test_the_processs_own_cpu_has_a_name_too(console: Console) -> None:
    assert console.do("result = jax.devices('host')[0] in jax.devices()") is False
    console.do("x = jax.device_put(np.arange(3.0), jax.devices('host')[0])")
    assert console.do("result = (x + 1).devices() == {jax.devices('host')[0]}")


def test_callbacks_get_arrays_of_the_processs_own_cpu(cluster: Cluster) -> None:
    """Of the cluster's, they would wait for the program that waits for them."""
    with Console(cluster, door="pjrt") as console:
        console.do("import jax, jax.numpy as jnp, numpy as np; seen = []")
        console.do("f = lambda a: (seen.append(list(a.devices())[0]), np.asarray(jnp.sin(a)))[1]")
        console.do("x = jnp.arange(4.0)")
        console.do("y = np.asarray(jax.jit(lambda x: jax.pure_callback(f, x, x))(x))")
        assert console.do("result = seen == [jax.devices('host')[0]]")
        assert console.do("result = bool(np.allclose(y, np.sin(np.arange(4.0))))")


def run(cluster: Cluster, script: str, folder: pathlib.Path) -> subprocess.CompletedProcess[str]:
    place = folder / "script.py"
    place.write_text(script)
    return subprocess.run(
        [str(GANGWAY), "run", "--port", str(cluster.port), str(place)],
        env=client_environment(cluster.port),
        capture_output=True,
        text=True,
        timeout=30 * PATIENCE,
    )


@pytest.mark.parametrize("before", ["", "jax.devices(); "])
def test_a_script_that_chooses_cpu_runs_on_a_cluster_of_cpus(
    cluster: Cluster, before: str, tmp_path: pathlib.Path
) -> None:
    choice = "jax.config.update('jax_platform_name', 'cpu')"
    ran = run(cluster, f"import jax; {before}{choice}\nprint(len(jax.devices()))\n", tmp_path)
    assert (ran.returncode, ran.stdout) == (0, "8\n"), ran.stderr
    assert "Warning" not in ran.stderr, ran.stderr


@pytest.mark.parametrize(
    ("choice", "option"),
    [
        ("import jax; jax.config.update('jax_platforms', 'cpu')", "JAX_PLATFORMS"),
        ("import jax; jax.config.update('jax_platform_name', 'host')", "jax_platform_name"),
    ],
)
def test_a_script_that_runs_off_the_cluster_is_told(
    cluster: Cluster, choice: str, option: str, tmp_path: pathlib.Path
) -> None:
    ran = run(cluster, f"{choice}\nprint(len(jax.devices()))\n", tmp_path)
    assert (ran.returncode, ran.stdout) == (0, "1\n"), ran.stderr
    assert f"{option} is" in ran.stderr and "does not run on the cluster" in ran.stderr, ran.stderr


def test_a_child_of_a_script_chooses_for_itself(cluster: Cluster, tmp_path: pathlib.Path) -> None:
    child = "import jax; print(len(jax.devices()))"
    script = (
        "import os, subprocess, sys, jax; jax.devices()\n"
        f"subprocess.run([sys.executable, '-c', {child!r}], check=True, "
        "env=os.environ | {'JAX_PLATFORMS': 'cpu'})\n"
    )
    ran = run(cluster, script, tmp_path)
    assert (ran.returncode, ran.stdout) == (0, "1\n"), ran.stderr
    assert "does not run on the cluster" not in ran.stderr, ran.stderr
