"""Work that holds a device from others: of a session that has ended, and of a session whose host callbacks do not
return; and how deep callbacks may nest.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import pytest
from faultlib import A_MINUTE, Console, elapsed
from harness import Cluster, wait_for

pytestmark = [pytest.mark.faults, pytest.mark.alone]  # they measure limits
NewCluster = Callable[..., Cluster]
LIMIT_S = 2
ORPHAN_S = 1
RUN_A_MINUTE = "a_minute(np.ones(4, 'float32')).block_until_ready()"
X_PLUS_1 = "result = float((jax.device_put(np.ones(4, 'float32')) + 1).sum())"


def wait_executing(cluster: Cluster) -> None:
    def executes() -> bool:
        return any(d["launches"] > 0 for worker in cluster.workers() for d in worker["devices"])

    wait_for("a device executing", executes, 20)


@pytest.mark.timeout(120)
def test_a_device_comes_back_from_the_program_of_a_session_that_has_ended(
    new_cluster: NewCluster,
) -> None:
    cluster = new_cluster(1, 1, 1, "--orphan-limit", str(ORPHAN_S)).start()
    with cluster.left_as_found(), Console(cluster, door="pjrt") as victim:
        for _ in range(3):
            victim.do(
                f"y = jax.device_put(np.ones(8, 'float32')); y.block_until_ready(); {X_PLUS_1}"
            )
            with Console(cluster, door="pjrt") as culprit:
                pid = str(culprit.pid)
                (owner,) = (s for s in cluster.status()["sessions"] if pid in s["client"])
                culprit.do(f"exec({A_MINUTE!r}, globals())")
                culprit.send(RUN_A_MINUTE)
                wait_executing(cluster)
                os.kill(culprit.pid, signal.SIGKILL)
                killed = time.monotonic()
            wait_for("x + 1 answered", lambda: victim.ask(X_PLUS_1).get("ok") == 8, ORPHAN_S + 5)
            assert elapsed(killed) < ORPHAN_S + 5
            lost = victim.ask("np.asarray(y)")["error"]
            assert "DATA_LOSS" in lost and "jit_a_minute" in lost, lost
            assert f"session {owner['id']}" in lost and owner["client"] in lost, lost
        with Console(cluster, door="pjrt") as culprit:  # whose program is known by now
            culprit.do(f"exec({A_MINUTE!r}, globals())")
            said = culprit.ask(RUN_A_MINUTE)["error"]
            assert "FAILED_PRECONDITION" in said and "(jit_a_minute) is quarantined" in said, said
            assert culprit.do(X_PLUS_1) == 8


def test_callbacks_of_one_session_do_not_hold_a_device_from_others(
    new_cluster: NewCluster,
) -> None:
    cluster = new_cluster(1, 1, 1, "--callback-hold", str(LIMIT_S)).start()
    with (
        cluster.left_as_found(),
        Console(cluster, door="pjrt") as victim,
        Console(cluster, door="pjrt") as culprit,
    ):
        victim.do(X_PLUS_1)
        incarnation = cluster.workers()[0]["incarnation"]
        culprit.do("import threading, time; begun = threading.Event()")
        culprit.do("stay = lambda a: (begun.set(), time.sleep(60), np.asarray(a))[2]")
        culprit.do("f = jax.jit(lambda x: jax.pure_callback(stay, x, x))")
        culprit.do("ys = [f(np.float32(i)) for i in range(40)]; begun.wait(20)")
        began = time.monotonic()
        assert victim.do(X_PLUS_1) == 8
        assert elapsed(began) < LIMIT_S + 5
        said = culprit.ask("jax.block_until_ready(ys)")["error"]
        assert "DEADLINE_EXCEEDED" in said and "have held device 0" in said, said
        assert cluster.workers()[0]["incarnation"] == incarnation, "the runtime has ended them"
        assert culprit.do(X_PLUS_1) == 8


def test_callbacks_nest_four_deep_and_no_deeper(cluster: Cluster) -> None:
    with Console(cluster, door="pjrt") as console:
        console.do("f, devices = {}, jax.devices()")  # each depth has a device of its own
        console.do("inner = lambda k, a: f[k](jax.device_put(np.asarray(a), devices[k]))")
        console.do("host = lambda k: lambda a: np.asarray(inner(k - 1, a) if k else a)")
        console.do(
            "f.update({k: jax.jit(lambda x, k=k: jax.pure_callback(host(k), x, x) + 1) "
            "for k in range(5)})"
        )
        assert console.do("result = float(inner(3, 0.0))", 60) == 4
        began = time.monotonic()
        said = console.ask("inner(4, 0.0).block_until_ready()", 60)["error"]
        assert "over the limit of 4 nested callbacks" in said, said
        assert elapsed(began) < 20
        assert console.do("result = float(inner(0, 0.0))") == 1
