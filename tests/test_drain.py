"""Workers that leave in an orderly way: `gangway drain`, SIGTERM to a worker, the end of a cluster. Running
work finishes, arrays stay readable, and new work is rejected with the worker's name.
"""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest
from faultlib import A_MINUTE, Blocker, Console, elapsed
from harness import GANGWAY, PATIENCE, Cluster, wait_for, warm_up
from hosts import ByHand
from test_liveness import by_hand

pytestmark = [pytest.mark.faults, pytest.mark.timeout(120)]
NewCluster = Callable[..., Cluster]
__all__ = ["by_hand"]


def drain(cluster: Cluster, *arguments: str) -> subprocess.CompletedProcess[str]:
    return cluster.command("drain", *arguments, "--port", str(cluster.port), timeout_s=30)


def copy_once(cluster: Cluster) -> None:
    """Opens the stream from one worker to another, which stays open after its first use."""
    warm_up(cluster)
    with Console(cluster) as client:
        client.do("x = jax.device_put(np.ones(4, 'float32'), jax.devices()[2])")
        client.do("jax.device_put(x, jax.devices()[0]).block_until_ready()")
    wait_for("the client gone", lambda: not cluster.status()["sessions"], 10)


def refused(answer: dict[str, Any], worker: str = "island0/worker1") -> bool:
    error = answer["error"]
    return "UNAVAILABLE" in error and worker in error and "takes no new work" in error


def test_a_drained_worker_finishes_and_can_be_read_and_takes_nothing_new(
    new_cluster: NewCluster,
) -> None:
    cluster = new_cluster(1, 2, 2, *Blocker.FLAGS)
    blocker = Blocker(cluster)
    cluster.start()
    with cluster.left_as_found(lambda: copy_once(cluster)), Console(cluster) as client:
        client.do("d0, d2 = jax.devices()[0], jax.devices()[2]; f = jax.jit(lambda x: x + 1)")
        client.do("x = jax.device_put(np.arange(4, dtype='float32'), d2); f(x).block_until_ready()")
        drained = cluster.workers()[1]
        with blocker.blocked(drained["pid"]):
            client.do("y = f(x)")
            wait_for("the call on the worker", lambda: cluster.workers()[1]["nodes"] > 0, 5)
            still = drain(cluster, "island0/worker1", "--wait", "0")
            assert still.returncode == 1 and "still" in still.stderr, still.stderr
            assert cluster.workers()[1]["draining"] and not cluster.workers()[0]["draining"]
            began = time.monotonic()
            assert refused(client.ask("np.asarray(f(x))"))  # at once, despite the blocked call
            assert elapsed(began) < 3 * PATIENCE
        done = drain(cluster, "island0/worker1")
        assert done.returncode == 0 and "nothing runs there" in done.stdout, done
        assert client.do("result = [float(np.asarray(a).sum()) for a in (y, x)]") == [10, 6]
        assert refused(client.ask("jax.device_put(np.ones(2), d2).block_until_ready()"))
        assert refused(client.ask("jax.device_put(x, jax.devices()[3]).block_until_ready()"))
        # Copies away from it, and work elsewhere, continue.
        assert client.do("z = jax.device_put(y, d0); result = float(f(z).sum())") == 14
        with Console(cluster) as later:  # a new session does not get its devices
            assert later.device_ids == [0, 1]
            assert later.do("result = float(jax.jit(jnp.sum)(np.ones(3, 'float32')))") == 3
            assert drain(cluster, "island0/worker1", "--undo").returncode == 0
            assert later.do("result = len(jax.devices())") == 2
        assert client.do("result = float(f(x).sum())") == 10
        assert cluster.workers()[1]["incarnation"] == drained["incarnation"]


def test_an_island_is_drained_for_the_replacement_of_its_hosts(new_cluster: NewCluster) -> None:
    cluster = new_cluster(2, 1, 2).start()
    with cluster.left_as_found():
        assert drain(cluster, "island1").returncode == 0
        away = cluster.workers()[1]
        os.kill(away["pid"], signal.SIGTERM)  # a restart does not end the drain
        wait_for(
            "the restarted worker",
            lambda: (
                cluster.workers()[1]["pid"] not in (0, away["pid"])
                and cluster.workers()[1]["state"] == "up"
            ),
            20,
        )
        assert cluster.workers()[1]["draining"]
        with Console(cluster) as client:
            assert client.device_ids == [0, 1]
        assert drain(cluster, "island0").returncode == 0
        result = cluster.command("run", "--port", str(cluster.port), str(script(cluster)))
        assert result.returncode != 0 and "being drained" in result.stderr, result.stderr
        for island in ("island0", "island1"):
            assert drain(cluster, island, "--undo").returncode == 0
        with Console(cluster) as client:
            assert client.device_ids == [0, 1, 2, 3]


def script(cluster: Cluster) -> pathlib.Path:
    path = pathlib.Path(cluster.state_dir) / "count.py"
    path.write_text("import jax\nprint(len(jax.devices()), 'devices')\n")
    return path


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("worker1", "names no worker"),
        ("island0/worker9", "is not declared"),
        ("", "names no worker"),
    ],
)
def test_what_cannot_be_drained_is_named(cluster: Cluster, target: str, words: str) -> None:
    result = drain(cluster, target)
    assert result.returncode == 1 and words in result.stderr, result
    assert not cluster.workers()[0]["draining"]


def test_a_worker_that_is_told_to_end_finishes_what_it_has(new_cluster: NewCluster) -> None:
    cluster = new_cluster(1, 1, 2, *Blocker.FLAGS)
    blocker = Blocker(cluster)
    cluster.start()
    with cluster.left_as_found(), Console(cluster) as client, Console(cluster) as other:
        client.do("f = jax.jit(lambda x: x + 1); x = jax.device_put(np.ones(4, 'float32'))")
        client.do("f(x).block_until_ready()")
        other.do("y = jax.device_put(np.ones(4, 'float32')); y.block_until_ready()")
        old = cluster.workers()[0]
        with blocker.blocked(old["pid"]):
            client.send("result = float(np.asarray(f(x)).sum())")
            wait_for("call and fetch on the worker", lambda: cluster.workers()[0]["nodes"] > 1, 5)
            os.kill(old["pid"], signal.SIGTERM)
            wait_for("the worker draining", lambda: cluster.workers()[0]["draining"], 3)
            answer = other.ask("(y + 1).block_until_ready()")
            assert refused(answer, "island0/worker0") and "told to end" in answer["error"], answer
            assert cluster.workers()[0]["pid"] == old["pid"]
        assert client.answer(10) == {"ok": 8.0}
        cluster.wait_for_words(f"island0/worker0 (pid {old['pid']}) ended with status 0")
        wait_for(
            "the restarted worker",
            lambda: (
                cluster.workers()[0]["state"] == "up" and cluster.workers()[0]["pid"] != old["pid"]
            ),
            20,
        )
        assert not cluster.workers()[0]["draining"]  # the drain ended with the process
        lost = client.ask("np.asarray(x)")
        assert "DATA_LOSS" in lost["error"] and "island0/worker0" in lost["error"], lost
        assert client.do("result = float(f(np.ones(4, 'float32')).sum())") == 8


@pytest.mark.alone
def test_a_worker_that_cannot_finish_ends_within_its_limit(
    by_hand: ByHand, tmp_path: pathlib.Path
) -> None:
    by_hand.start_worker("worker0", 0, "--leave-limit", "2")
    by_hand.start_worker("worker1", 1)
    for index in range(2):
        by_hand.wait_until(index, "up", 20)
    with Console(by_hand) as client:
        client.do(f"exec({A_MINUTE!r}, globals())")
        client.do("y = a_minute(jax.device_put(np.float32(1), jax.devices()[0]))")
        wait_for("the call on the worker", lambda: by_hand.workers()[0]["nodes"] > 0, 10)
        told = time.monotonic()
        by_hand.processes["worker0"].send_signal(signal.SIGTERM)
        by_hand.processes["worker0"].wait(15 * PATIENCE)
        took = elapsed(told)
        assert 2 <= took < 10, took  # the limit, and 5 s to close the runtime
        assert "work unfinished" in by_hand.log("worker0"), by_hand.log("worker0")
        failed = client.ask("y.block_until_ready()")
        assert "DATA_LOSS" in failed["error"] and "island0/worker0" in failed["error"], failed
    del by_hand.processes["worker0"]


def test_the_end_of_a_cluster_lets_a_running_call_finish(new_cluster: NewCluster) -> None:
    cluster = new_cluster(1, 1, 1, *Blocker.FLAGS)
    blocker = Blocker(cluster)
    cluster.start()
    with Console(cluster) as client, Console(cluster) as other:
        client.do("f = jax.jit(lambda x: x + 1); x = jax.device_put(np.ones(4, 'float32'))")
        client.do("f(x).block_until_ready()")
        other.do("y = jax.device_put(np.ones(4, 'float32')); y.block_until_ready()")
        with blocker.blocked(cluster.workers()[0]["pid"]):
            client.send("result = float(np.asarray(f(x)).sum())")
            wait_for("call and fetch on the worker", lambda: cluster.workers()[0]["nodes"] > 1, 5)
            down = subprocess.Popen(
                [str(GANGWAY), "down", "--port", str(cluster.port)],
                env={**os.environ, **cluster.environment},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            cluster.wait_for_words("ending the cluster", 5)
            refusal = other.ask("(y + 1).block_until_ready()")
            assert "shutting down" in refusal["error"], refusal
        assert client.answer(10) == {"ok": 8.0}
        assert down.wait(20 * PATIENCE) == 0, down.communicate()
    assert not cluster.processes()
