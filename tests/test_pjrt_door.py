"""JAX through Gangway's PJRT plugin: what the IFRT proxy's client cannot, what a script meets when its cluster is
lost, and that nothing stays behind. The suite of test_jax.py runs through the plugin too.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest
from faultlib import Console
from harness import ROOT, Cluster, run_client, wait_for

LOST_S = 15  # a dead controller is noticed at once; the rest is for busy machines


def run_script(port: int, text: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return run_client(text, port, "pjrt", environment)


@pytest.fixture
def console(cluster: Cluster) -> Iterator[Console]:
    with Console(cluster, door="pjrt") as opened:
        yield opened


def test_only_the_entry_point_is_exported() -> None:
    symbols = subprocess.run(
        ["nm", "-D", "--defined-only", str(ROOT / "bin" / "libgangway_pjrt.so")],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\n")
    assert [line.split()[-1] for line in symbols if line] == ["GetPjrtApi"]


def test_devices_are_the_clusters(console: Console) -> None:
    assert console.device_ids == list(range(8))
    assert console.do("result = {d.platform for d in jax.devices()} == {'cpu'}")
    assert console.do("result = [d.slice_index for d in jax.devices()]") == [0] * 8
    assert console.do("result = jax.devices()[0].default_memory().kind") == "device"


def test_numpy_arrays_of_any_strides(console: Console) -> None:
    """The proxy's client rejects negative and zero strides."""
    console.do("a = np.arange(24, dtype=np.int32).reshape(2, 3, 4)")
    for view in (
        "a[::-1]",
        "a[:, ::-2, 1:]",
        "a.transpose(2, 0, 1)",
        "np.broadcast_to(a[0, 0], (5, 4))",
        "a[:0]",
    ):
        assert console.do(f"v = {view}; result = bool((np.asarray(jax.device_put(v)) == v).all())")


def test_a_numpy_array_that_changes_after_the_call_does_not_matter(console: Console) -> None:
    console.do("f = jax.jit(lambda x: x + 1); a = np.zeros(1 << 16, np.float32); f(a)")
    console.do("y = f(a); a[:] = 7")
    assert console.do("result = float(np.asarray(y).max())") == 1


def test_one_shard_of_an_array_can_go_alone(console: Console) -> None:
    console.do("from jax.sharding import NamedSharding, PartitionSpec as P")
    console.do("s = NamedSharding(jax.make_mesh((8,), ('d',)), P('d'))")
    console.do("x = jax.device_put(np.arange(16.0), s)")
    console.do("one = x.addressable_shards[3].data")
    console.do("del x")
    assert console.do("result = np.asarray(one).tolist()") == [6, 7]
    # Shards of several arrays, in another order, are the argument of one call.
    console.do("y = jax.device_put(np.arange(16.0), s)")
    console.do("parts = [p.data for p in y.addressable_shards]")
    console.do("z = jax.make_array_from_single_device_arrays((16,), s, parts)")
    console.do("del y, parts")
    assert console.do("result = float(jax.jit(jnp.sum)(z))") == 120


def test_donated_and_deleted_arrays_are_errors(console: Console) -> None:
    console.do("f = jax.jit(lambda x: x * 2, donate_argnums=0)")
    console.do("x = jax.device_put(np.ones(4, np.float32)); y = f(x)")
    assert console.do("result = [x.is_deleted(), y.is_deleted()]") == [True, False]
    assert "deleted" in console.ask("result = np.asarray(x).tolist()")["error"]
    assert console.do("result = np.asarray(y).tolist()") == [2] * 4


def test_cost_analysis_and_layouts_are_known(console: Console) -> None:
    """The proxy's client raises."""
    console.do("c = jax.jit(lambda x: x @ x).lower(np.ones((8, 8), np.float32)).compile()")
    assert console.do("result = c.cost_analysis()['flops']") > 0
    assert console.do("result = c.memory_analysis().output_size_in_bytes") == 256


def test_errors_of_programs_reach_the_script(console: Console) -> None:
    said = console.ask("jax.jit(lambda: jnp.ones(1 << 38))().block_until_ready()")["error"]
    assert "RESOURCE_EXHAUSTED" in said
    assert console.do("result = float(jnp.ones(3).sum())") == 3


def test_a_script_may_run_far_ahead_TM_2(console: Console) -> None:
    """More calls than the cluster takes from a session at once."""
    console.do("f = jax.jit(lambda x: x + 1); x = jax.device_put(np.float32(0))")
    console.do("for _ in range(40000): x = f(x)", 60)
    assert console.do("result = float(x)", 60) == 40000


def test_ends_that_the_script_does_not_look_for_are_told_together(
    cluster: Cluster, console: Console
) -> None:
    """By the count of frames: one per round of ends would be hundreds, one per 10 ms and one per 256 ends are few, and
    so is one for each moment in which the cluster has caught up with the script.
    """

    def frames() -> int:
        count: int = cluster.status()["counters"]["frames_to_clients"]
        return count

    def call(times: int) -> None:
        console.do(f"for _ in range({times}): x = f(x)")
        wait_for("the ends of all calls", lambda: not pending(), 60)

    def pending() -> int:
        return sum(session["pending_nodes"] for session in cluster.status()["sessions"])

    console.do("f = jax.jit(lambda x: x + 1); x = f(jax.device_put(np.float32(0)))")
    call(99)
    before, began = frames(), time.monotonic()
    call(3000)
    took_s = time.monotonic() - began
    told = frames() - before
    assert told <= took_s / 0.01 + 3000 / 256 + 40, (told, took_s)
    assert console.do("result = float(x)") == 3100
    # Nor is a script that waits for the last of many calls told of those before it, one by one.
    before, began = frames(), time.monotonic()
    console.do("for i in range(1, 3001): x = f(x).block_until_ready() if i == 3000 else f(x)")
    took_s = time.monotonic() - began
    told = frames() - before
    assert told <= took_s / 0.01 + 3000 / 256 + 40, (told, took_s)
    # A script that looks for each end is told of each at once.
    before = frames()
    console.do("for _ in range(200): x = f(x).block_until_ready()")
    assert frames() - before >= 200


def devices_threads_slept(pid: int) -> int:
    """How often the threads of a worker's devices have slept, by the kernel's count."""
    slept = 0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            if re.fullmatch(r"device\d+\n", (task / "comm").read_text()):
                status = (task / "status").read_text()
                slept += int(status.split("\nvoluntary_ctxt_switches:")[1].split()[0])
    return slept


def test_a_short_call_wakes_no_thread_of_a_device(cluster: Cluster, console: Console) -> None:
    """Once the worker knows that it is short. On a busy machine a call takes long now and then."""
    worker = cluster.workers()[0]["pid"]
    console.do("f = jax.jit(lambda x: x + 1); x = f(np.ones(4, np.float32)); x.block_until_ready()")

    def wakes_few() -> bool:
        before = devices_threads_slept(worker)
        console.do("for _ in range(300): f(x).block_until_ready()", 30)
        return devices_threads_slept(worker) - before < 15

    wait_for("300 calls on the worker's loop", wakes_few, 60)


def test_nothing_is_left(cluster: Cluster) -> None:
    def use() -> None:
        with Console(cluster, door="pjrt") as client:
            client.do("f = jax.jit(lambda x: x + 1); x = f(np.ones(1 << 18, np.float32))")
            client.do("for _ in range(200): x = f(x)")
            assert client.do("result = float(np.asarray(x)[0])") == 202
            client.do("keep = [f(x) for _ in range(20)]")

    with cluster.left_as_found(use):
        use()


def test_dropped_arrays_are_freed_while_the_session_lives(
    cluster: Cluster, console: Console
) -> None:
    console.do("f = jax.jit(lambda x: x + 1); x = jax.device_put(np.ones(1 << 16, np.float32))")
    console.do("x.block_until_ready()")
    with cluster.left_as_found(lambda: None):
        console.do("ys = [f(x) for _ in range(50)]; jax.block_until_ready(ys)")
        console.do("del ys")
        console.do("f(x).block_until_ready()")


def test_a_lost_cluster_is_an_error_and_the_script_goes_on() -> None:
    cluster = Cluster(1, 1, 2).start()
    try:
        with Console(cluster, door="pjrt") as client:
            client.do("f = jax.jit(lambda x: x + 1); x = jax.device_put(np.ones(4, np.float32))")
            client.do("f(x).block_until_ready()")
            cluster.stop()
            for question in (
                "np.asarray(x)",
                "f(x).block_until_ready()",
                "jax.device_put(1.0) + 1",
            ):
                said = client.ask(f"result = str({question})", LOST_S)
                assert "UNAVAILABLE" in said["error"], said
            assert client.do("result = 1 + 1") == 2
    finally:
        cluster.stop()


def test_a_lost_worker_is_an_error_on_its_arrays_alone_ER_1_ER_2() -> None:
    cluster = Cluster(1, 2, 1).start()
    try:
        with Console(cluster, door="pjrt") as client:
            client.do("xs = [jax.device_put(np.ones(4, np.float32), d) for d in jax.devices()]")
            client.do("f = jax.jit(lambda x: x + 1); jax.block_until_ready([f(x) for x in xs])")
            worker = cluster.workers()[1]["pid"]
            os.kill(worker, signal.SIGSTOP)
            # The bytes travel with the message, so that the call is released behind them.
            client.do("late = f(jax.device_put(np.ones(4, np.float32), jax.devices()[1]))")
            os.kill(worker, signal.SIGKILL)
            for lost in ("xs[1] + 1", "late"):
                said = client.ask(f"result = np.asarray({lost}).tolist()", LOST_S)
                assert "DATA_LOSS" in said["error"] and "island0/worker1" in said["error"], said
            assert client.do("result = np.asarray(xs[0] + 1).tolist()") == [2] * 4
    finally:
        cluster.stop()


def test_a_missing_cluster_is_named() -> None:
    ran = run_script(1, "import gangway; gangway.connect()")
    assert ran.returncode == 1
    assert "no Gangway cluster has left its address" in ran.stderr


def test_a_wrong_token_is_rejected(cluster: Cluster) -> None:
    ran = run_script(cluster.port, "import gangway; gangway.connect()", GANGWAY_TOKEN="wrong")
    assert ran.returncode == 1
    assert "token" in ran.stderr
