"""Programs over several workers whose devices communicate: the bits of XLA's own collectives on every layout, and no
wait without an end. `test_jax` and `test_train` run whole programs so.
"""

from __future__ import annotations

import os
import pathlib
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from typing import cast

import pytest
from case_runs import kept, reference_key
from faultlib import Console, the_cause
from harness import (
    NIGHTLY,
    PATIENCE,
    PYTHON,
    ROOT,
    Cluster,
    client_environment,
    output_of_client,
    wait_for,
)
from reference import THREADS
from test_faults import wait_for_restart
from test_transfers import shared_bytes

NewCluster = Callable[..., Cluster]
STREAMS = ("--shared-memory", "0")
ENDED_S = 1.0  # after a known failure
SILENT_S = 6.5  # after a silent one: 5 s, the interval of the heartbeats, and the messages
SETUP = """
import gangway; gangway.connect()
import hashlib, jax, jax.numpy as jnp, numpy as np
from functools import partial
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
devices = np.array(jax.devices())
mesh = Mesh(devices.reshape(2, 4), ("a", "b"))
both = NamedSharding(mesh, P("a", "b"))
draw = np.random.default_rng(0).standard_normal
"""
# The nightly run also has sizes that are not a power of two, and further types, which the corpus has by themselves.
SIZES = """
SIZES = [(8, 8, np.float32), (256, 1024, np.float64), (64, 64, jnp.bfloat16), (512, 2048, np.float32)]
"""
if NIGHTLY:
    SIZES += "SIZES[1:1] = [(64, 500, np.float32), (64, 64, np.float16), (40, 40, np.int8)]"
# Reductions of every size, whose order shows in the bits, in a loop and a branch; and what only moves bytes.
BITS = """
digests = []
def keep(*arrays):
    for array in jax.tree.leaves(arrays):
        digests.append(hashlib.sha256(np.asarray(array).tobytes()).hexdigest())
shard = partial(jax.shard_map, mesh=mesh, in_specs=P("a", "b"), out_specs=P("a", "b"), check_vma=False)
for rows, columns, kind in SIZES:
    x = jax.device_put(jnp.asarray(draw((rows, columns)) * 3).astype(kind), both)
    for axes in ("a", "b", ("a", "b"), ("b", "a")):
        keep(jax.jit(shard(lambda v: jax.lax.psum(v, axes)))(x))
        keep(jax.jit(shard(lambda v: jax.lax.pmax(v, axes) - jax.lax.pmin(v, axes)))(x))
    keep(jax.jit(shard(lambda v: jax.lax.all_gather(v, "b").sum(0)))(x))
    keep(jax.jit(shard(lambda v: jax.lax.ppermute(v, "b", [(0, 2), (2, 3), (1, 1)])))(x))
    keep(jax.jit(shard(lambda v: jax.lax.all_to_all(v, "a", 0, 1, tiled=True)))(x))
    keep(jax.jit(shard(lambda v: jax.lax.psum_scatter(v, "a", scatter_dimension=0, tiled=True).repeat(2, 0)))(x))
wide, x = x, jax.device_put(draw((64, 128)).astype(np.float32), both)
@jax.jit
def looped(x):
    def body(i, v):
        v = jax.lax.cond(i % 3 == 0, lambda v: v - v.mean(0), lambda v: v * 0.7 + v.sum(1, keepdims=True) / 999, v)
        return jnp.tanh(v @ v.T @ x / 99)  # not so small that it ends as zeros
    return jax.lax.fori_loop(0, 25, body, x)
keep(looped(x))
# A permutation and an exchange whose result is the loop's next operand, small and large.
for y in (x, wide):
    ring, pair = [(0, 1), (1, 2), (2, 3), (3, 0)], dict(split_axis=0, concat_axis=0, tiled=True)
    keep(jax.jit(shard(lambda v: jax.lax.fori_loop(0, 3, lambda i, w: jax.lax.ppermute(w, "b", ring), v)))(y))
    keep(jax.jit(shard(lambda v: jax.lax.fori_loop(0, 3, lambda i, w: jax.lax.all_to_all(w, "a", **pair), v)))(y))
def loss(w, x): return jnp.square(jnp.tanh(x @ w) - 1).mean()
keep(jax.jit(jax.value_and_grad(loss))(jax.device_put(draw((128, 128)).astype(np.float32), both), x))
keep(jnp.sort(x, axis=0), jnp.cumsum(x, axis=1), jnp.fft.fft(x, axis=0).real)
print("bits", *digests)
"""
STEP = """
step = jax.jit(lambda x: x - (x.sum() - 2047) / 2048)
ones = lambda: jax.device_put(np.ones((64, 32), np.float32), both)
def run(count):
    v = ones()
    for _ in range(count): v = step(v)
    return v
result = float(run(3).sum())
"""
# Its operands are results, which workers of one host read in each other's heaps.
LARGE = """
row = NamedSharding(Mesh(devices, ("x",)), P("x"))
wide = lambda: jax.device_put(np.ones((8, 1 << 19), np.float32), row)
total = lambda v: jax.lax.psum(v * 3, "x") / 3
large = jax.jit(jax.shard_map(total, mesh=row.mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False))
result = float(large(wide())[0, 0])
"""

# Programs of two of the devices.
PAIRS = """
import gangway; gangway.connect()
import jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
def on(*positions):
    row = NamedSharding(Mesh(np.array(jax.devices())[list(positions)], ("x",)), P("x"))
    return row, jax.device_put(np.ones(2, np.float32), row)
f = lambda row, body: jax.jit(jax.shard_map(body, mesh=row.mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False))
to_second = lambda v: jax.lax.ppermute(v, "x", [(0, 1)])
"""


def way_of(options: tuple[str, ...]) -> str:
    """By which the members of a gang exchange bytes."""
    return "streams" if options else "shared"


def run(cluster: Cluster, text: str, door: str = "pjrt") -> str:
    """The output of a JAX script, which must succeed."""
    return output_of_client(SETUP + textwrap.dedent(text), cluster.port, door, timeout_s=240)


def bits(output: str) -> list[str]:
    """The digest of each array."""
    (line,) = (line for line in output.splitlines() if line.startswith("bits "))
    return line.split()[1:]


def bits_alone(folder: pathlib.Path) -> list[str]:
    """Those of the same plugin in one process, with XLA's own collectives."""
    alone = SETUP.replace("import gangway; gangway.connect()", "") + SIZES + BITS

    def compute() -> list[str]:
        script = folder / "alone.py"
        script.write_text(alone)
        done = subprocess.run(
            [sys.executable, str(ROOT / "testing" / "reference.py"), str(script)],
            capture_output=True,
            text=True,
            timeout=240 * PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return bits(done.stdout)

    return cast("list[str]", kept(reference_key(alone, []), compute))


@pytest.mark.timeout(600)
def test_the_same_bits_on_every_layout(new_cluster: NewCluster, tmp_path: pathlib.Path) -> None:
    # Without shared memory, workers exchange streams.
    layouts: dict[str, tuple[int, int, tuple[str, ...]]] = {
        "4x2 by streams": (4, 2, STREAMS),
    }
    if NIGHTLY:
        layouts |= {
            "1x8": (1, 8, ()),
            "4x2": (4, 2, ()),
            "2x4": (2, 4, ()),
            "8x1": (8, 1, ()),
            "8x1 by streams": (8, 1, STREAMS),
        }
    expected = bits_alone(tmp_path)
    for name, (workers, count, options) in layouts.items():
        # One size of the thread pool, which the bits of products depend on.
        cluster = new_cluster(1, workers, count, "--threads", THREADS, *options).start()
        found = bits(run(cluster, SIZES + BITS))
        cluster.stop()
        differ = [i for i, (a, b) in enumerate(zip(found, expected, strict=True)) if a != b]
        assert not differ, f"{name}: not the bits of XLA's own collectives in arrays {differ}"


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("door", "options"),
    [("pjrt", ()), ("pjrt", STREAMS)] + ([("ifrt", ())] if NIGHTLY else []),
    ids=["pjrt", "streams"] + (["ifrt"] if NIGHTLY else []),
)
def test_a_lost_member_ends_the_wait_of_all(
    new_cluster: NewCluster, door: str, options: tuple[str, ...]
) -> None:
    """A killed member fails its gangs at once, a stopped one by its limit; both are named, and the next gang runs."""
    running = new_cluster(1, 4, 2, *options).start()
    with Console(running, door=door) as client:
        client.do(f"exec({SETUP!r}, globals())")
        assert client.do(f"exec({STEP!r}, globals())", timeout_s=60) == 2047.0
        for how, limit_s in ((signal.SIGKILL, ENDED_S), (signal.SIGSTOP, SILENT_S)):
            client.do("v = run(200)")
            victim = running.workers()[2]
            os.kill(victim["pid"], how)
            began = time.monotonic()
            client.do("exec('for _ in range(40): v = step(v)', globals())")
            answer = client.ask("jax.block_until_ready(v)")
            took = time.monotonic() - began
            assert "island0/worker2" in str(answer), answer
            assert took < limit_s * PATIENCE, took
            wait_for_restart(running, victim)
            others = {w["pid"] for w in running.workers() if w["name"] != victim["name"]}
            assert client.do("result = float(run(3).sum())") == 2047.0
            assert others <= {w["pid"] for w in running.workers()}, (
                "no process ends because a peer did"
            )


def heaps(pid: int, access: str) -> dict[str, int]:
    """The heaps that a worker maps with this access ("rw-s": its own), with the KiB of each that it has touched."""
    found: dict[str, int] = {}
    inode = ""
    for line in pathlib.Path(f"/proc/{pid}/smaps").read_text().splitlines():
        words = line.split()
        if "-" in words[0]:  # a mapping: addresses, access, offset, device, inode, file
            inode = words[4] if "memfd:gangway-heap" in line and words[1] == access else ""
        elif inode and words[0] == "Rss:":
            found[inode] = found.get(inode, 0) + int(words[1])
    return found


def test_workers_read_each_others_heaps_and_give_them_back(new_cluster: NewCluster) -> None:
    """Without further gangs, in whose place a device would keep nothing of the earlier ones."""
    running = new_cluster(1, 4, 2).start()
    with Console(running, door="pjrt") as client:
        client.do(f"exec({SETUP!r}, globals())")
        assert client.do(f"exec({LARGE!r}, globals())", timeout_s=60) == 8.0
        victim, *others = running.workers()
        for worker in others:
            read = heaps(worker["pid"], "r--s")
            assert len(read) == 3 and min(read.values()) >= 512, (worker["name"], read)
        (of_victim,) = heaps(victim["pid"], "rw-s")
        os.kill(victim["pid"], signal.SIGKILL)
        wait_for(
            "no heap of the worker that is gone",
            lambda: not any(of_victim in heaps(worker["pid"], "r--s") for worker in others),
            10,
        )
    alone = new_cluster(1, 2, 1, "--shared-memory", "0").start()
    assert not any(heaps(worker["pid"], "rw-s") for worker in alone.workers())


UPLOADED = """
row = NamedSharding(Mesh(devices, ("x",)), P("x"))
x = jax.device_put(np.ones((2 << 20,), np.float32), row)  # 4 MiB on each device
part = lambda v: jax.lax.psum_scatter(v, "x", scatter_dimension=0, tiled=True)
scatter = jax.jit(jax.shard_map(part, mesh=row.mesh, in_specs=P("x"), out_specs=P("x")))
result = float(jax.jit(lambda v: v + 1)(x)[0])
"""


def test_an_upload_that_a_collective_reads_moves_to_the_heap(new_cluster: NewCluster) -> None:
    """It arrives in memory that only its worker and client map. That memory is given back after the move."""
    running = new_cluster(1, 2, 1).start()
    setup = SETUP.replace("devices.reshape(2, 4)", "devices.reshape(2, 1)")
    with Console(running, door="pjrt") as client:
        client.do(f"exec({setup!r}, globals())")
        assert client.do(f"exec({UPLOADED!r}, globals())", timeout_s=60) == 2.0
        workers = running.workers()
        assert all(shared_bytes(worker["pid"]) for worker in workers)
        for _ in range(2):
            assert client.do("result = float(scatter(x)[0])") == 2.0
        wait_for(
            "no shards in shared memory",
            lambda: not any(shared_bytes(worker["pid"]) for worker in workers),
            25,
        )
        assert client.do("result = float(scatter(x).sum() + x.sum())") == 2 * (2 << 20)
        for worker in workers:
            read = heaps(worker["pid"], "r--s")  # half of the other device's operand
            assert len(read) == 1 and min(read.values()) >= 2 << 10, (worker["name"], read)


BURST = """
row = NamedSharding(Mesh(devices, ("x",)), P("x"))
part = lambda v: jax.lax.psum(v, "x") * 0.5
over = lambda f: jax.jit(jax.shard_map(f, mesh=row.mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False))
step = over(part)
# So long that all calls of a burst are behind it.
slow = over(lambda v: jax.lax.fori_loop(0, 50_000_000, lambda i, w: w + (i < 0), v))
def burst(calls):
    v = slow(jax.device_put(np.ones(2, np.float32), row))
    for _ in range(calls):
        v = step(v)
    return float(v.sum())
result = burst(10)
"""
CALLS = 400
HELD_S = 0.003  # the most that the end of a gang is held where others are behind it


def writes_of(pid: int) -> int:
    """Of threads that wake another one. Messages are sent by another system call."""
    found = pathlib.Path(f"/proc/{pid}/io").read_text(encoding="utf-8")
    return int(found.split("syscw:")[1].split()[0])


def test_gangs_with_work_behind_them_do_not_wake_their_workers_one_by_one(
    new_cluster: NewCluster,
) -> None:
    running = new_cluster(1, 2, 1).start()
    setup = SETUP.replace("devices.reshape(2, 4)", "devices.reshape(2, 1)")
    with Console(running, door="pjrt") as client:
        client.do(f"exec({setup!r}, globals())")
        assert client.do(f"exec({BURST!r}, globals())", timeout_s=60) == 2.0
        workers = running.workers()
        before = [writes_of(worker["pid"]) for worker in workers]
        began = time.monotonic()
        assert client.do(f"result = burst({CALLS})") == 2.0
        took_s = time.monotonic() - began
        for worker, written in zip(workers, before, strict=True):
            # On a host where 400 gangs take long, their ends go because of the time.
            assert writes_of(worker["pid"]) - written < CALLS / 4 + took_s / HELD_S, worker["name"]


AWAITED = """
def awaited(calls):
    v = jax.device_put(np.ones(2, np.float32), row)
    for _ in range(calls):
        v = step(v)  # the old one is dropped now, and freed at the end of the call
        v.block_until_ready()
    return float(v.sum())
result = awaited(10)
"""


def test_what_a_gang_frees_wakes_no_worker(new_cluster: NewCluster) -> None:
    """By the frames of the head: of each call, one to each worker and one to the script. What is freed then would be one
    more to each worker, and comes with the next call.
    """
    running = new_cluster(1, 2, 1).start()
    setup = SETUP.replace("devices.reshape(2, 4)", "devices.reshape(2, 1)")

    def frames() -> int:
        sent: int = running.status()["counters"]["head_frames_sent"]
        return sent

    with Console(running, door="pjrt") as client:
        client.do(f"exec({setup!r}, globals())")
        assert client.do(f"exec({BURST!r}, globals())", timeout_s=60) == 2.0
        assert client.do(f"exec({AWAITED!r}, globals())", timeout_s=60) == 2.0
        before = frames()
        assert client.do(f"result = awaited({CALLS})") == 2.0
        assert frames() - before < 4 * CALLS


def one_fault(running: Cluster, client: Console, rng: random.Random, round_: int) -> None:
    stops = rng.random() < 0.2
    client.do(f"v = run({rng.choice([1, 5, 100])}); w = large(wide())")
    client.do("exec('for _ in range(30): v = step(v); w = large(w)', globals())")
    time.sleep(rng.random() * 0.05)
    victim = rng.choice(running.workers())
    os.kill(victim["pid"], signal.SIGSTOP if stops else signal.SIGKILL)
    began = time.monotonic()
    client.do("exec('for _ in range(30): v = step(v); w = large(w)', globals())")
    for value in ("v", "w"):
        answer = str(client.ask(f"jax.block_until_ready({value})"))
        assert victim["name"] in answer, (round_, answer)
    took = time.monotonic() - began
    assert took < (SILENT_S if stops else ENDED_S) * PATIENCE, (round_, took)
    wait_for_restart(running, victim)
    assert client.do("result = float(run(3).sum())") == 2047.0, round_
    assert client.do("result = float(large(wide())[0, 0])") == 8.0, round_


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("clusters", [pytest.param(10, marks=pytest.mark.alone) if NIGHTLY else 1])
def test_random_faults_of_members(new_cluster: NewCluster, clusters: int) -> None:
    """Before, in and between collectives of every size, a worker is killed, or stopped until it is counted as gone."""
    rng = random.Random(7)
    for _ in range(clusters):  # a worker that ends too often soon after its start is given up
        running = new_cluster(1, 4, 2).start()
        with Console(running, door="pjrt") as client:
            client.do(f"exec({SETUP!r}, globals())")
            client.do(f"exec({STEP!r}, globals())", timeout_s=60)
            client.do(f"exec({LARGE!r}, globals())", timeout_s=60)
            for round_ in range(5):
                one_fault(running, client, rng, round_)
        running.stop()


@pytest.mark.parametrize("options", [(), STREAMS] if NIGHTLY else [()], ids=way_of)
def test_a_failed_member_is_the_cause_everywhere(
    new_cluster: NewCluster, options: tuple[str, ...]
) -> None:
    """A member whose callback fails never reaches the collective: all others get its error, and other gangs go on."""
    busy_s = int(4 * PATIENCE)
    running = new_cluster(1, 2, 2, *options).start()
    with Console(running, door="pjrt") as client:
        client.do("exec(" + repr(SETUP.replace("reshape(2, 4)", "reshape(2, 2)")) + ", globals())")
        client.do(
            "exec("
            + repr(
                f"busy_s = {busy_s}"
                + """
import time
def fail_on(position, flag):
    if flag and position == 3: raise ValueError("member 3 has had enough")
    if flag > 1 and position == 2: time.sleep(int(flag))  # as if it computed
    return np.float32(0)
def body(v, flag):
    position = jax.lax.axis_index(("a", "b"))
    zero = jax.pure_callback(fail_on, jax.ShapeDtypeStruct((), np.float32), position, flag)
    return jax.lax.psum(v + zero, ("a", "b"))
f = jax.jit(jax.shard_map(body, mesh=mesh, in_specs=(P("a", "b"), P()), out_specs=P(), check_vma=False))
x = jax.device_put(np.ones((4, 4), np.float32), both)
good = jax.device_put(np.int32(0), NamedSharding(mesh, P()))
bad = jax.device_put(np.int32(1), NamedSharding(mesh, P()))
worse = jax.device_put(np.int32(busy_s), NamedSharding(mesh, P()))
"""
            )
            + ", globals())"
        )
        assert client.do("result = float(f(x, good).sum())", timeout_s=60) == 16.0
        for flag in ("bad", "worse"):
            began = time.monotonic()
            client.do(f"y = f(x, {flag})")
            errors = []
            for shard in range(4):
                answer = client.ask(f"np.asarray(y.addressable_shards[{shard}].data)")
                errors.append(answer["error"])
                # Members on other workers do not wait for the failed member's neighbour, which computes.
                if flag == "bad" or shard < 2:
                    assert time.monotonic() - began < ENDED_S * PATIENCE, (flag, shard)
            cause = the_cause(errors, "island0/worker1")
            assert cause == "INTERNAL: the host callback raised ValueError: member 3 has had enough"
        assert client.do("result = float(f(x, good).sum())") == 16.0


@pytest.mark.parametrize("options", [(), STREAMS] if NIGHTLY else [STREAMS], ids=way_of)
def test_positions_that_run_collectives_in_two_orders_fail_alone(
    new_cluster: NewCluster, options: tuple[str, ...]
) -> None:
    """A branch that each position takes for itself: its gang fails by name, and another session's gangs go on."""
    running = new_cluster(1, 2, 1, *options).start()
    two = """
row, x = on(0, 1)
each = lambda i, v: jax.lax.switch((i + jax.lax.axis_index("x")) % 3, [lambda v, k=k: v + k * to_second(v) for k in range(3)], v)
twisted = f(row, lambda v: jax.lax.fori_loop(0, 3, each, v))
longer = f(row, lambda v: jax.lax.fori_loop(0, 1 + jax.lax.axis_index("x"), lambda i, v: jax.lax.psum(v, "x"), v))
total = f(row, lambda v: jax.lax.psum(v, "x"))
result = float(total(x)[0])
"""
    with Console(running, door="pjrt") as client, Console(running, door="pjrt") as other:
        for one in (client, other):
            assert one.do("exec(" + repr(PAIRS + two) + ", globals())", timeout_s=60) == 2.0
        for _ in range(3):
            other.do("many = [total(x) for _ in range(50)]")
            answer = str(client.ask("np.asarray(twisted(x))", timeout_s=60))
            assert "in one order" in answer, answer
            assert other.do("result = sum(float(v[0]) for v in many)", timeout_s=60) == 100.0
        began = time.monotonic()
        answer = str(client.ask("np.asarray(longer(x))", timeout_s=60))
        assert "has ended the program without it" in answer, answer
        assert time.monotonic() - began < 10 * PATIENCE
        assert client.do("result = float(total(x)[0])") == 2.0


def test_messages_that_no_reader_takes_hold_up_no_other_gang(
    new_cluster: NewCluster,
) -> None:
    """By streams, a device's slots are free once a gang has ended, also for gangs whose members are others."""
    running = new_cluster(1, 3, 1, "--shared-memory", "0").start()
    far = """
near, x = on(0, 1)
unread = f(near, lambda v: jax.lax.cond(jax.lax.axis_index("x") == 0, to_second, lambda v: v, v))
far, y = on(0, 2)
total = f(far, lambda v: jax.lax.psum(v, "x"))
result = float(total(y)[0])
"""
    with Console(running, door="pjrt") as client, Console(running, door="pjrt") as other:
        for one in (client, other):
            assert one.do("exec(" + repr(PAIRS + far) + ", globals())", timeout_s=60) == 2.0
        for _ in range(3):
            client.do("result = [np.asarray(unread(x)).tolist() for _ in range(5)][0]")
            began = time.monotonic()
            assert other.do("result = sum(float(total(y)[0]) for _ in range(20))") == 40.0
            assert time.monotonic() - began < 10 * PATIENCE


def test_clients_take_turns_and_leave_nothing(
    new_cluster: NewCluster, tmp_path: pathlib.Path
) -> None:
    """Gangs of several sessions over the same devices, some in opposite order of their meshes."""
    running = new_cluster(1, 4, 2).start()
    script = tmp_path / "turns.py"
    script.write_text(
        SETUP
        + textwrap.dedent("""
        import sys
        order = [0, 3, 5, 6, 1, 2, 7, 4] if sys.argv[1] == "1" else range(8)
        mesh = Mesh(devices[list(order)].reshape(4, 2), ("a", "b"))
        both = NamedSharding(mesh, P("a", "b"))
        step = jax.jit(lambda x: x * 0.5 + x.mean() * 0.5)
        for _ in range(8):
            values = [jax.device_put(np.full((8, 8), i, np.float32), both) for i in range(4)]
            for _ in range(25): values = [step(v) for v in values]
            for i, v in enumerate(values): np.testing.assert_array_equal(np.asarray(v), np.full((8, 8), i))
        """)
    )

    def all_at_once() -> None:
        clients = [
            subprocess.Popen(
                [PYTHON, str(script), str(i % 2)],
                env=client_environment(running.port, "pjrt"),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for i in range(3)
        ]
        for client in clients:
            output, _ = client.communicate(timeout=120 * PATIENCE)
            assert client.returncode == 0, output

    with running.left_as_found(all_at_once):
        all_at_once()
