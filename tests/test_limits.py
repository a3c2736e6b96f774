"""Memory budgets and many gangs at once, end to end: nothing hangs, nothing is lost, errors state sizes."""

from __future__ import annotations

import pathlib
import subprocess
import textwrap
from collections.abc import Callable

import pytest
from harness import PATIENCE, Cluster, client_environment, wait_for

NewCluster = Callable[..., Cluster]
MIB = 1 << 20


def run_script(cluster: Cluster, folder: pathlib.Path, text: str, timeout_s: float = 120) -> str:
    """Runs a plain JAX script, which must succeed, on the cluster; returns its output."""
    script = folder / "script.py"
    script.write_text("import jax, jax.numpy as jnp, numpy as np\n" + textwrap.dedent(text))
    result = start_script(cluster, script)
    output, _ = result.communicate(timeout=timeout_s * PATIENCE)
    assert result.returncode == 0, output
    return output


def start_script(cluster: Cluster, script: pathlib.Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [str(cluster.binary), "run", "--port", str(cluster.port), str(script), *arguments],
        env=client_environment(cluster.port),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def steps(
    cluster: Cluster, folder: pathlib.Path, count: int, elements: int, jit_flags: str = ""
) -> dict[str, int]:
    """Runs `x = f(x)` `count` times on `elements` floats; returns the status of the only device."""
    output = run_script(
        cluster,
        folder,
        f"""
        x = jax.device_put(np.zeros({elements}, np.float32))
        f = jax.jit(lambda x: x + 1, {jit_flags})
        for _ in range({count}):
            x = f(x)
        print("last", float(x[7]))
        """,
        200,
    )
    assert f"last {count}.0" in output, output
    device: dict[str, int] = {}

    def freed() -> bool:
        device.update(cluster.workers()[0]["devices"][0])
        return device["bytes_in_use"] == 0

    wait_for("the ended script's memory is free", freed, 5)
    return device


@pytest.mark.timeout(240)
def test_an_array_larger_than_the_host_is_refused_without_a_budget_GS_2(
    cluster: Cluster, tmp_path: pathlib.Path
) -> None:
    """An allocation that malloc refuses would end the worker."""
    output = run_script(
        cluster,
        tmp_path,
        """
        try:
            jnp.ones(1 << 38).block_until_ready()
        except Exception as error:
            print(error)
        print("then", float(jnp.ones(4).sum()))
        """,
    )
    assert "Shard it over more devices" in output and "then 4.0" in output, output


def test_ten_thousand_undonated_steps_in_the_memory_of_four_arrays_GS_2(
    new_cluster: NewCluster, tmp_path: pathlib.Path
) -> None:
    cluster = new_cluster(1, 1, 1, "--memory", str(4 * MIB)).start()
    device = steps(cluster, tmp_path, 10000, MIB // 4)
    assert device["peak_bytes"] <= 4 * MIB, device


@pytest.mark.alone
def test_a_program_over_the_budget_fails_at_once_with_the_sizes_GS_2(
    new_cluster: NewCluster, tmp_path: pathlib.Path
) -> None:
    cluster = new_cluster(1, 1, 1, "--memory", str(4 * MIB)).start()
    output = run_script(
        cluster,
        tmp_path,
        """
        import time
        x = jax.device_put(np.zeros(256 * 1024, np.float32))
        began = time.monotonic()
        try:
            jax.jit(lambda x: jnp.stack([x + i for i in range(9)]))(x).block_until_ready()
            print("no error")
        except Exception as error:
            print("took", time.monotonic() - began, "error", error)
        print("alive", float(jax.jit(jnp.sum)(x)))
        """,
    )
    assert "RESOURCE_EXHAUSTED" in output and f"the budget is {4 * MIB}" in output, output
    assert str(9 * MIB) in output and "alive 0.0" in output, output
    took = float(output.split("took ")[1].split()[0])
    assert took < 10, output  # including the compilation; a wait for memory would take 30 s


def test_donation_reuses_memory_GS_2(new_cluster: NewCluster, tmp_path: pathlib.Path) -> None:
    cluster = new_cluster(1, 1, 1).start()
    device = steps(cluster, tmp_path, 50, 16 * MIB // 4, "donate_argnums=0")
    assert 16 * MIB <= device["peak_bytes"] < 24 * MIB, device  # one array of 16 MiB, not two


@pytest.mark.timeout(180)
def test_two_hundred_gangs_of_four_sessions_with_collectives_finish_GS_1(
    cluster: Cluster, tmp_path: pathlib.Path
) -> None:
    script = tmp_path / "gangs.py"
    script.write_text(
        textwrap.dedent(
            """
            import functools
            import jax, jax.numpy as jnp, numpy as np
            from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

            mesh = Mesh(np.array(jax.devices()), ("d",))
            @jax.jit
            @functools.partial(jax.shard_map, mesh=mesh, in_specs=P("d"), out_specs=P("d"))
            def step(x):
                return jax.lax.psum(x, "d") / 8 + 1
            x = jax.device_put(jnp.zeros((8, 4)), NamedSharding(mesh, P("d")))
            results = [step(x) for _ in range(25)]        # independent gangs
            for _ in range(25):
                x = step(x)                               # and a chain of them
            print("sum", float(sum(r.sum() for r in results)), "chain", float(x[0, 0]))
            """
        )
    )
    running = [start_script(cluster, script) for _ in range(4)]
    for each in running:
        output, _ = each.communicate(timeout=150 * PATIENCE)
        assert each.returncode == 0 and "sum 800.0 chain 25.0" in output, output


@pytest.mark.timeout(180)
def test_programs_of_many_collectives_finish_on_the_smallest_pool(
    new_cluster: NewCluster, tmp_path: pathlib.Path
) -> None:
    """Two sessions, all launches in flight at once: without the gate that admits one such gang to a device at a
    time, the collectives of several gangs block every thread of the pool.
    """
    cluster = new_cluster(1, 1, 8, "--threads", "10").start()
    script = tmp_path / "collectives.py"
    script.write_text(
        textwrap.dedent(
            """
            import functools, sys
            import jax, jax.numpy as jnp, numpy as np
            from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

            mesh = Mesh(np.array(jax.devices()), ("d",))
            @jax.jit
            @functools.partial(jax.shard_map, mesh=mesh, in_specs=P("d"), out_specs=P("d"))
            def step(x):
                parts = [jnp.tanh(jax.lax.psum((x[0] * i) @ x[0], "d")) for i in range(16)]
                return jnp.stack(parts)[None]
            x = np.random.default_rng(int(sys.argv[1])).standard_normal((8, 128, 128)) / 16
            x = jax.device_put(x.astype("float32"), NamedSharding(mesh, P("d")))
            first = np.asarray(step(x))
            results = [step(x) for _ in range(60)]
            same = [np.array_equal(np.asarray(r), first) for r in results[::6] + results[-1:]]
            print("all same" if all(same) else "different")
            """
        )
    )
    running = [start_script(cluster, script, str(seed)) for seed in (1, 2)]
    for each in running:
        output, _ = each.communicate(timeout=120 * PATIENCE)
        assert each.returncode == 0 and "all same" in output, output
