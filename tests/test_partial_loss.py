"""Loss is per device: what is left of an array when one of the workers that hold it is lost, as JAX sees it."""

from __future__ import annotations

import os
import pathlib
import re
import signal
import subprocess
from collections.abc import Callable

import pytest
from faultlib import Console
from harness import GANGWAY, PATIENCE, ROOT, Cluster, client_environment, wait_for

pytestmark = pytest.mark.faults
NewCluster = Callable[..., Cluster]
STEPS = 120


def kill(cluster: Cluster, name: str) -> None:
    victim = next(worker for worker in cluster.workers() if worker["name"] == name)
    os.kill(victim["pid"], signal.SIGKILL)


def test_shards_on_live_workers_stay_ER_1(new_cluster: NewCluster) -> None:
    cluster = new_cluster(2, 2, 1).start()
    with Console(cluster) as client:
        client.do("from jax.sharding import Mesh, NamedSharding, PartitionSpec as P")
        client.do("mesh = lambda devices: Mesh(np.array(devices), ('x',))")
        client.do("v = np.arange(8, dtype='float32'); every = mesh(jax.devices())")
        client.do("split = jax.device_put(v, NamedSharding(every, P('x')))")
        client.do("whole = jax.device_put(v, NamedSharding(every, P()))")
        client.do("unread = jax.device_put(jnp.arange(8.0) + 0, NamedSharding(every, P()))")
        client.do("before = split.addressable_shards[2].data")
        client.do("jax.block_until_ready([split, whole, unread])")
        kill(cluster, "island0/worker0")
        for lost in ("split.addressable_shards[0].data", "whole.addressable_shards[0].data"):
            failed = client.ask(f"np.asarray({lost})")
            assert "DATA_LOSS" in failed["error"] and "island0/worker0" in failed["error"], failed
        failed = client.ask("np.asarray(split)")
        assert "DATA_LOSS" in failed["error"], failed
        # Views, made before or after the loss, as values and as arguments.
        assert client.do("result = np.asarray(before).tolist()") == [4, 5]
        for shard in (1, 2, 3):
            each = f"split.addressable_shards[{shard}].data"
            assert client.do(f"result = np.asarray({each}).tolist()") == [2 * shard, 2 * shard + 1]
            assert client.do(f"result = float(jnp.sum({each}))") == 4 * shard + 1
        # A replicated array is read from a replica that is left.
        assert client.do("result = np.asarray(whole).tolist()") == list(range(8))
        assert client.do("result = jax.device_get(unread).tolist()") == list(range(8))
        failed = client.ask("whole.block_until_ready()")  # asks for every shard
        assert "DATA_LOSS" in failed["error"], failed
        # It moves to a mesh of live devices without the host.
        client.do("left = NamedSharding(mesh(jax.devices()[1:]), P())")
        assert client.do("result = np.asarray(jax.device_put(whole, left)).tolist()") == list(
            range(8)
        )
        assert (
            client.do("result = float(jax.jit(jnp.sum)(jax.device_put(unread, jax.devices()[3])))")
            == 28
        )


def run(cluster: Cluster, folder: pathlib.Path, door: str, *flags: str) -> subprocess.Popen[bytes]:
    folder.mkdir()
    with (folder / "said").open("wb") as out:
        return subprocess.Popen(
            [
                *[str(GANGWAY), "run", "--port", str(cluster.port)],
                str(ROOT / "examples" / "elastic_replicas.py"),
                *["--steps", str(STEPS), "--losses", str(folder / "losses"), *flags],
            ],
            env=client_environment(cluster.port, door),
            stdout=out,
            stderr=out,
        )


@pytest.mark.nightly
@pytest.mark.timeout(300)
@pytest.mark.parametrize("door", ["pjrt", "ifrt"])
def test_training_goes_on_from_surviving_replicas(
    door: str, new_cluster: NewCluster, tmp_path: pathlib.Path
) -> None:
    cluster = new_cluster(2, 2, 1).start()
    folder = tmp_path / "faulty"
    script = run(cluster, folder, door)
    said = folder / "said"
    try:
        wait_for(
            "a few steps",
            lambda: "step 20/" in said.read_text() or script.poll() is not None,
            120,
        )
        kill(cluster, "island0/worker1")
        assert script.wait(timeout=120 * PATIENCE) == 0, said.read_text()
    finally:
        script.kill()
    lost = re.findall(r"step (\d+): lost device (\d+): DATA_LOSS: ", said.read_text())
    assert len(lost) == 1 and lost[0][1] == "1", said.read_text()
    assert "on 3 devices" in said.read_text()
    losses = (folder / "losses").read_text().splitlines()
    # Without a fault, and the same devices at each step: the same bits.
    script = run(cluster, tmp_path / "whole", door, "--leave-out", ":".join(lost[0]))
    try:
        assert script.wait(timeout=120 * PATIENCE) == 0, (tmp_path / "whole" / "said").read_text()
    finally:
        script.kill()
    assert losses == (tmp_path / "whole" / "losses").read_text().splitlines()
    assert len(losses) == STEPS
