"""Processes that die, hang or start with a wrong configuration: what other processes see, how soon, and
with which message. Every wait is for an event, with the deadline of the design.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import time
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from case_runs import run_cases
from faultlib import Console
from harness import DOORS, NIGHTLY, PATIENCE, Cluster, wait_for

pytestmark = pytest.mark.faults
NewCluster = Callable[..., Cluster]
MIB = 1 << 20
SORTS = 400 if NIGHTLY else 80  # of a program whose compile a test interrupts


@pytest.fixture(params=DOORS)
def door(request: pytest.FixtureRequest) -> str:
    """By which JAX reaches the cluster: a fault costs the same through both."""
    return str(request.param)


def only_worker(cluster: Cluster) -> dict[str, Any]:
    (worker,) = cluster.workers()
    return worker


def wait_for_restart(cluster: Cluster, old: dict[str, Any]) -> dict[str, Any]:
    """Waits until the worker of this name is up again as another process; returns its status."""

    def restarted() -> dict[str, Any] | None:
        for worker in cluster.workers():
            if (
                worker["name"] == old["name"]
                and worker["state"] == "up"
                and worker["pid"] != old["pid"]
            ):
                return worker
        return None

    new: dict[str, Any] = wait_for(f"{old['name']} up again", restarted, 20)
    assert new["incarnation"] != old["incarnation"]
    assert [d["id"] for d in new["devices"]] == [d["id"] for d in old["devices"]]
    return new


def cpu_seconds(pid: int) -> float:
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.alone
def test_a_killed_client_is_freed_within_two_seconds_OB_2(
    new_cluster: NewCluster, door: str
) -> None:
    cluster = new_cluster(1, 1, 8).start()
    with (
        cluster.left_as_found(),
        Console(cluster, door=door) as survivor,
        Console(cluster, door=door) as victim,
    ):
        survivor.do("x = jax.device_put(np.arange(8.0, dtype='float32')); x.block_until_ready()")
        before = cluster.status()
        victim.do(
            "xs = [jax.device_put(np.ones(1 << 20, 'float32'), d) for d in jax.devices()]; "
            "jax.block_until_ready(xs)"
        )
        held = cluster.status()
        assert held["arrays"] >= before["arrays"] + 8
        assert held["bytes"] >= before["bytes"] + 8 * 4 * MIB
        assert len(held["sessions"]) == 2
        victim.send("ys = [x + 1 for x in xs for _ in range(50)]")  # killed with work in flight
        os.kill(victim.pid, signal.SIGKILL)
        killed = time.monotonic()

        def freed() -> bool:
            status = cluster.status()
            return (status["arrays"], status["bytes"]) == (before["arrays"], before["bytes"])

        wait_for("the killed client's arrays freed", freed, 2)
        assert time.monotonic() - killed < 2.5
        assert len(cluster.status()["sessions"]) == 1
        used = sum(device["bytes_in_use"] for device in only_worker(cluster)["devices"])
        assert used <= before["bytes"] + MIB
        assert survivor.do("result = float((x + 1).sum())") == 36


def test_a_killed_worker_is_an_error_on_its_arrays_and_the_client_goes_on_ER_1(
    new_cluster: NewCluster, door: str
) -> None:
    cluster = new_cluster(1, 1, 8).start()
    with cluster.left_as_found(), Console(cluster, door=door) as client:
        client.do("f = jax.jit(lambda x: x * 2 + 1); x = f(np.arange(8, dtype='float32'))")
        client.do("x.block_until_ready()")
        old = only_worker(cluster)
        os.kill(old["pid"], signal.SIGKILL)
        failed = client.ask("np.asarray(x)")
        assert "DATA_LOSS" in failed["error"] and "island0/worker0" in failed["error"], failed
        # Every result computed from it carries the error, root cause first.
        dependent = client.ask("np.asarray(f(x) + 3)")
        assert "DATA_LOSS" in dependent["error"] and "island0/worker0" in dependent["error"], (
            dependent
        )
        wait_for_restart(cluster, old)
        assert client.do("result = [device.id for device in jax.devices()]") == client.device_ids
        assert client.do("result = float(f(np.arange(8, dtype='float32')).sum())") == 64
        assert client.do("result = float(jax.jit(lambda x: x - 5)(np.float32(7)))") == 2
        wait_for("lost arrays no longer counted", lambda: cluster.status()["bytes"] < MIB, 5)


def test_a_worker_killed_with_gangs_in_flight_ER_2(new_cluster: NewCluster, door: str) -> None:
    cluster = new_cluster(1, 2, 4).start()
    with (
        cluster.left_as_found(),
        Console(cluster, door=door) as lost,
        Console(cluster, door=door) as other,
    ):
        victim = next(w for w in cluster.workers() if w["name"] == "island0/worker0")
        other.do(
            "d = jax.devices()[7]; y = jax.device_put(np.ones(4, 'float32'), d); result = d.id"
        )
        lost.do("f = jax.jit(lambda x: jnp.sin(x @ x)); d = jax.devices()[0]")
        lost.do("x = jax.device_put(np.ones((1024, 1024), 'float32'), d); f(x).block_until_ready()")
        lost.send("for _ in range(200): x = f(x)")
        lost.answer(20)
        os.kill(victim["pid"], signal.SIGKILL)
        failed = lost.ask("x.block_until_ready()")
        assert "DATA_LOSS" in failed["error"] and "island0/worker0" in failed["error"], failed
        # The other worker's arrays and the other client are unaffected.
        assert other.do("result = float((y + 1).sum())") == 8
        wait_for_restart(cluster, victim)
        assert (
            lost.do("result = float(f(jax.device_put(np.zeros((4, 4), 'float32'), d)).sum())") == 0
        )


def test_a_wrong_plugin_path_is_named(new_cluster: NewCluster) -> None:
    result = new_cluster(1, 1, 1, "--plugin", "/no/such/plugin.so").up()
    assert result.returncode != 0
    assert "/no/such/plugin.so" in result.stderr, result.stderr


def test_a_plugin_that_is_none_is_named(new_cluster: NewCluster, tmp_path: pathlib.Path) -> None:
    fake = tmp_path / "plugin.so"
    fake.write_text("not a shared object")
    result = new_cluster(1, 1, 1, "--plugin", str(fake)).up()
    assert result.returncode != 0
    assert str(fake) in result.stderr, result.stderr


def test_a_client_of_another_version_is_told(cluster: Cluster) -> None:
    # GetVersionRequest {min_version {1, 0}, max_version {1, 0}}: older than any supported client.
    request = b"\x0a\x04\x08\x01\x10\x00\x12\x04\x08\x01\x10\x00"
    with cluster.left_as_found():
        with grpc.insecure_channel(f"127.0.0.1:{cluster.port}") as channel:
            call = channel.unary_unary("/xla.ifrt.proxy.GrpcIfrtService/GetVersion")
            with pytest.raises(grpc.RpcError) as raised:
                call(request, timeout=10 * PATIENCE)
    error: Any = raised.value
    assert error.code() == grpc.StatusCode.FAILED_PRECONDITION, error
    assert "version" in error.details() and "jaxlib" in error.details(), error.details()


@pytest.mark.timeout(180)
def test_a_compiler_killed_in_mid_compile_costs_nobody_else_anything(
    new_cluster: NewCluster, door: str
) -> None:
    cluster = new_cluster(1, 1, 8).start()
    with (
        cluster.left_as_found(),
        Console(cluster, door=door) as client,
        Console(cluster, door=door) as other,
    ):
        client.do(
            "x = np.ones((8, 8), 'float32'); kept = jax.device_put(x); kept.block_until_ready()"
        )
        client.do(
            "g = lambda x: "
            f"[x := jnp.sort(jnp.tanh(x @ x + i), axis=0) for i in range({SORTS})][-1]"
        )
        client.do("lowered = jax.jit(g).lower(x)", 40)
        compiler, worker = cluster.status()["compiler"], only_worker(cluster)
        used = cpu_seconds(compiler["pid"])
        client.send("lowered.compile()")
        wait_for("the compiler at work", lambda: cpu_seconds(compiler["pid"]) > used + 0.3, 60)
        os.kill(compiler["pid"], signal.SIGKILL)
        answer = client.answer(50)  # compiled again, or an error that names the compiler
        assert "ok" in answer or "compiler" in answer["error"], answer
        assert client.do("result = float((kept + 41).max())", 30) == 42
        assert other.do("result = float(jax.jit(lambda x: x * 6)(np.float32(7)))", 30) == 42
        wait_for("a compiler", lambda: cluster.status()["compiler"]["state"] == "up", 10)
        assert cluster.status()["compiler"]["pid"] != compiler["pid"]
        assert only_worker(cluster)["pid"] == worker["pid"]


def test_what_stays_behind_is_noticed(cluster: Cluster) -> None:
    with contextlib.ExitStack() as stack:
        with (
            pytest.raises(AssertionError, match=r"'sessions': '1, were 0'.*'descriptors of head'"),
            cluster.left_as_found(within_s=0.2),
        ):
            stack.enter_context(Console(cluster))


def test_wrong_use_by_a_jax_client_leaves_nothing(
    cluster: Cluster, tmp_path: pathlib.Path, door: str
) -> None:
    """The cases themselves assert the error messages; test_jax.py runs them too."""
    cases = [
        "programs.case_compile_error",
        "programs.case_shape_errors",
        "programs.case_device_mismatch",
        "compute.case_use_after_donation",
        "arrays.case_delete",
    ]
    with cluster.left_as_found():
        backend = {"ifrt": "gangway", "pjrt": "gangway-pjrt"}[door]
        for name, outcome in run_cases(backend, cases, tmp_path, cluster.port).items():
            assert not outcome.error, f"{name}: {outcome.error}"


def test_up_on_a_taken_port_says_so(cluster: Cluster) -> None:
    with cluster.left_as_found():
        result = cluster.up()
    assert result.returncode != 0
    assert str(cluster.port) in result.stderr, result.stderr
    assert only_worker(cluster)["state"] == "up"


def test_down_without_a_cluster_is_not_an_error_that_hangs(new_cluster: NewCluster) -> None:
    result = new_cluster(1, 1, 1).command("down", timeout_s=10)
    assert "Traceback" not in result.stderr
