"""Arrays between workers: two islands of two workers with two devices each. Arrays arrive bitwise equal,
directly from worker to worker, and a lost worker yields an error with its name. The tests use shared
memory, streams, and a pool of shared memory that is often full.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from harness import NIGHTLY, PATIENCE, Cluster, wait_for
from test_faults import Console, wait_for_restart

NewCluster = Callable[..., Cluster]
MIB = 1 << 20
DEVICES = 8
# Mesh i is on worker i; a mesh over devices 1 and 2 spans two workers.
SETUP = """
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P, SingleDeviceSharding
import ml_dtypes, hashlib
devices = jax.devices()
mesh = [Mesh(np.array(devices[2 * i : 2 * i + 2]), ("x",)) for i in range(len(devices) // 2)]
on = [NamedSharding(m, P("x")) for m in mesh]
whole = [NamedSharding(m, P()) for m in mesh]
def noise(n, dtype="uint8", seed=0):
    raw = np.random.default_rng(seed).integers(0, 256, n * np.dtype(dtype).itemsize, dtype="uint8")
    return raw.view(dtype) if np.dtype(dtype) != bool else raw[:n] % 2 == 0
def same(a, b):
    a, b = np.asarray(a), np.asarray(b)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
"""


DOWNLOAD_IN_THREADS = """
import threading
xs = [jax.jit(lambda v: v + i)(jax.device_put(noise(64 << 20), devices[{device}])) for i in range(4)]
jax.block_until_ready(xs)
for x in xs: threading.Thread(target=np.asarray, args=(x,), daemon=True).start()
"""


def run(client: Console, statements: str) -> None:
    client.do(f"exec({statements!r}, globals())", 60)


PLANES = {"shared": [], "streams": ["--shared-memory", "0"]}
SMALL = {"small-pool": ["--shared-memory", "6MB"]}
# For tests of what does not depend on how the bytes go: by default, half of the shards find no room in the pool.
by_any_plane = pytest.mark.parametrize(
    "two_islands", [*PLANES, *SMALL] if NIGHTLY else [*SMALL], indirect=True, scope="module"
)


@pytest.fixture(scope="module", params=[*PLANES, *SMALL])
def two_islands(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    running = Cluster(2, 2, 2, *(PLANES | SMALL)[request.param]).start()
    yield running
    running.stop()


@pytest.fixture(params=PLANES if NIGHTLY else ["shared"])
def faulty(request: pytest.FixtureRequest, new_cluster: NewCluster) -> Cluster:
    """A cluster for tests that kill its processes."""
    return new_cluster(2, 2, 2, *PLANES[request.param]).start()


@contextlib.contextmanager
def session(cluster: Cluster) -> Iterator[Console]:
    with Console(cluster) as client:
        run(client, SETUP)
        yield client


@pytest.fixture(scope="module")
def shared_session(two_islands: Cluster) -> Iterator[Console]:
    with session(two_islands) as client:
        run(client, "kept = {*globals(), 'kept'}")
        yield client


@pytest.fixture
def client(two_islands: Cluster, shared_session: Console) -> Iterator[Console]:
    """The session that tests of a plane share, with none of their names left in it."""
    before = used_bytes(two_islands)
    yield shared_session
    run(shared_session, "[globals().pop(name) for name in {*globals()} - kept]")
    wait_for("the test's arrays freed", lambda: used_bytes(two_islands) == before, 10)


def all_pairs(cluster: Cluster) -> None:
    """Opens every stream between workers; those without a fault stay open."""
    with session(cluster) as client:
        run(client, "xs = [jax.device_put(noise(1 << 18), s) for s in on]")
        run(client, "ys = [jax.device_put(x, s) for x in xs for s in on]")
        run(client, "fs = [jax.jit(lambda v: v + 1)(y) for y in ys]; jax.block_until_ready(fs)")


def data_bytes(cluster: Cluster) -> dict[str, int]:
    """Bulk bytes by path, summed over the workers."""
    total: dict[str, int] = {}
    for worker in cluster.workers():
        for path, count in worker["data_bytes"].items():
            total[path] = total.get(path, 0) + count
    return total


def used_bytes(cluster: Cluster) -> int:
    return sum(d["bytes_in_use"] for w in cluster.workers() for d in w["devices"])


def worker_of(cluster: Cluster, name: str) -> dict[str, Any]:
    worker: dict[str, Any] = next(w for w in cluster.workers() if w["name"] == name)
    return worker


def shared_bytes(pid: int) -> int:
    """Bytes of shared memory for shards that the process has mapped."""
    total = 0
    for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines():
        if "memfd:gangway-shards" in line:
            first, last = line.split()[0].split("-")
            total += int(last, 16) - int(first, 16)
    return total


def resident_bytes(pid: int) -> int:
    pages = int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@by_any_plane
@pytest.mark.parametrize("to", [1, 2, 3])  # a worker of the same island, two of the other one
def test_sharded_arrays_arrive_bitwise(client: Console, to: int) -> None:
    run(client, "x = noise(1 << 16, 'float32')")
    run(client, f"y = jax.device_put(jax.device_put(x, on[0]), on[{to}])")
    assert client.do("result = same(y, x)")
    assert client.do("result = sorted(d.id for d in y.devices())") == [2 * to, 2 * to + 1]
    assert client.do("result = float(jax.jit(lambda v: jnp.nansum(v * 0))(y))") == 0


def test_every_element_type_arrives_bitwise(client: Console) -> None:
    run(
        client,
        """
types = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
         "float16", "float32", "float64", "complex64", "complex128", ml_dtypes.bfloat16,
         ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.int4, ml_dtypes.uint4]
jax.config.update("jax_enable_x64", True)
bad = []
for i, t in enumerate(types):
    x = noise(64, t, i)
    if np.dtype(t) in (np.dtype(ml_dtypes.int4), np.dtype(ml_dtypes.uint4)):
        x = (np.arange(64) % 7).astype(t)
    if not same(jax.device_put(jax.device_put(x, on[i % 4]), on[(i + 1 + i // 4) % 4]), x):
        bad.append(str(t))
jax.config.update("jax_enable_x64", False)
""",
    )
    assert client.do("result = bad") == []


def test_every_size_arrives_bitwise(client: Console) -> None:
    run(
        client,
        f"""
bad = []
for n in [0, 2, 6, 4096, {MIB} - 2, {MIB}, {MIB} + 2, 5 * {MIB} + 2, 16 * {MIB}]:
    x = noise(n)
    for a, b in ((0, 1), (3, 0)):
        if not same(jax.device_put(jax.device_put(x, on[a]), on[b]), x): bad.append(n)
""",
    )
    assert client.do("result = bad") == []


def test_layouts_of_all_kinds_arrive(client: Console) -> None:
    run(
        client,
        """
x = noise(4096, 'float32').reshape(64, 64)
one = jax.device_put(jax.device_put(x, devices[0]), devices[7])
copies = jax.device_put(jax.device_put(x, whole[0]), whole[3])
across = [NamedSharding(Mesh(np.array([devices[i] for i in ids]), ("x",)), P("x"))
          for ids in ([0, 1, 2, 6], [6, 5, 0, 1], [4, 2, 7, 0], [1, 7, 4, 5])]
spread = jax.device_put(x, across[0])
for s in across[1:]: spread = jax.device_put(spread, s)
scalar = jax.device_put(jax.device_put(np.float32(3), devices[1]), devices[6])
result_of = [same(one, x), same(copies, x), same(spread, x), float(scalar) == 3]
""",
    )
    assert client.do("result = result_of") == [True] * 4


@by_any_plane
def test_a_chain_of_hops_is_submitted_without_waiting(client: Console) -> None:
    run(
        client,
        """
f = [jax.jit(lambda v: v * 2 + 1, out_shardings=s) for s in on]
x = jax.device_put(np.arange(1 << 16, dtype="float32"), on[0])
expected = np.arange(1 << 16, dtype="float32")
for hop in range(12):
    x = f[hop % 4](x)
    expected = expected * 2 + 1
    x = jax.device_put(x, on[(hop + 1) % 4])
""",
    )
    assert client.do("result = same(x, expected)")


@by_any_plane
def test_a_donated_source_is_read_first(client: Console) -> None:
    run(
        client,
        """
g = jax.jit(lambda v: v + 1, donate_argnums=0, out_shardings=on[0])
x = jax.device_put(np.zeros(1 << 20, "float32"), on[0])
copies = []
for i in range(20):
    copies.append(jax.device_put(x, on[1 + i % 3]))
    x = g(x)
seen = [sorted(set(np.asarray(c).tolist())) for c in copies]
last = float(np.asarray(x)[0])
""",
    )
    assert client.do("result = seen") == [[float(i)] for i in range(20)]
    assert client.do("result = last") == 20


@by_any_plane
def test_many_arrays_at_once_in_all_directions(client: Console) -> None:
    run(
        client,
        """
xs = [noise(100_000, seed=i) for i in range(48)]
at = [jax.device_put(x, on[i % 4]) for i, x in enumerate(xs)]
moved = jax.device_put(at, [on[(i * 7 + 1 + i // 4) % 4] for i in range(48)])
good = [same(m, x) for m, x in zip(moved, xs)]
""",
    )
    assert client.do("result = all(good) and len(good) == 48")


def test_bytes_go_from_worker_to_worker_only_and_are_counted(
    request: pytest.FixtureRequest, two_islands: Cluster, client: Console
) -> None:
    plane = request.node.callspec.params["two_islands"]
    size = 8 * MIB
    run(client, f"x = jax.device_put(noise({size}), on[0]); x.block_until_ready()")
    time.sleep(1.2)  # workers report their counts once a second
    before = data_bytes(two_islands)
    frames = two_islands.status()["counters"]["frames_from_clients"]
    run(client, "ys = [jax.device_put(x, on[i]) for i in (1, 2, 3)]; jax.block_until_ready(ys)")
    wait_for(
        "the bytes counted by the receivers",
        lambda: data_bytes(two_islands)["from_workers"] >= before["from_workers"] + 3 * size,
        5,
    )
    wait_for(
        "the bytes counted by the sender",
        lambda: data_bytes(two_islands)["to_workers"] >= before["to_workers"] + 3 * size,
        5,
    )
    after = data_bytes(two_islands)
    assert after["from_workers"] == before["from_workers"] + 3 * size
    assert after["to_workers"] == before["to_workers"] + 3 * size
    for path in ("from_workers_shared", "to_workers_shared"):
        shared = after[path] - before[path]
        assert shared == {"shared": 3 * size}.get(plane, 0), "a shard is larger than the small pool"
    assert after["from_clients"] == before["from_clients"]
    assert after["to_clients"] == before["to_clients"]
    assert two_islands.status()["counters"]["frames_from_clients"] < frames + 20
    assert "workers" in two_islands.command("status").stdout


def counted(
    cluster: Cluster, client: Console, statements: str, between_workers: int
) -> dict[str, int]:
    """Bulk bytes by path that `statements` moved; waits for `between_workers` from worker to worker."""
    time.sleep(1.2)  # workers report their counts once a second
    before = data_bytes(cluster)
    run(client, statements)
    wanted = before["from_workers"] + between_workers
    wait_for("the bytes counted", lambda: data_bytes(cluster)["from_workers"] >= wanted, 5)
    time.sleep(1.2)
    return {path: count - before[path] for path, count in data_bytes(cluster).items()}


@by_any_plane
def test_pathwaysutils_reshard_moves_bytes_from_worker_to_worker_only(
    two_islands: Cluster, client: Console
) -> None:
    size = 4 * MIB
    run(
        client,
        f"""
from pathwaysutils import reshard as pw
raw = noise({size})
x = jax.jit(lambda v: v ^ 1)(jax.device_put(raw, on[0]))
copy = jax.device_put(raw, whole[1])
wide = NamedSharding(Mesh(np.array(devices[4:8]), ("x",)), P())
jax.block_until_ready([x, copy])
""",
    )
    statements = """
y = pw.reshard(x, on[3])
z, one = pw.reshard([copy, y], [wide, on[2]])
jax.block_until_ready([y, z, one])
"""
    # x once; four replicas of `copy` on other workers; x again.
    moved = counted(two_islands, client, statements, 6 * size)
    assert moved["from_workers"] == moved["to_workers"] == 6 * size, moved
    assert moved["from_clients"] == moved["to_clients"] == 0, moved
    assert client.do("result = same(y, raw ^ 1) and same(one, raw ^ 1) and y.sharding == on[3]")
    assert client.do("result = [same(s.data, raw) for s in z.addressable_shards]") == [True] * 4

    refused = client.ask("jax.block_until_ready(pw.reshard(x, whole[2]))")
    assert "UNIMPLEMENTED" in refused["error"] and "out_shardings" in refused["error"], refused
    run(client, "w = pw.reshard(jax.jit(lambda v: v, out_shardings=whole[0])(x), whole[2])")
    assert client.do("result = same(w, raw ^ 1)")


@by_any_plane
def test_a_device_put_that_changes_the_spec_goes_through_the_client(
    two_islands: Cluster, client: Console
) -> None:
    size = 4 * MIB
    run(client, f"raw = noise({size}); x = jax.device_put(raw, on[0]).block_until_ready()")
    moved = counted(two_islands, client, "y = jax.device_put(x, whole[3]).block_until_ready()", 0)
    assert client.do("result = same(y, raw)")
    assert moved["to_clients"] == size and moved["from_clients"] >= size, moved
    assert moved["from_workers"] == 0, moved


def test_a_full_pool_is_no_fault(
    request: pytest.FixtureRequest, two_islands: Cluster, client: Console
) -> None:
    """Live arrays keep their part of the pool; later copies use the stream."""
    plane = request.node.callspec.params["two_islands"]
    time.sleep(1.2)
    before = data_bytes(two_islands)
    run(client, f"xs = [jax.device_put(noise(2 * {MIB}, seed=i), on[0]) for i in range(8)]")
    run(client, "ys = [jax.device_put(x, on[1]) for x in xs]; jax.block_until_ready(ys)")
    assert client.do(f"result = all(same(y, noise(2 * {MIB}, seed=i)) for i, y in enumerate(ys))")
    time.sleep(1.2)
    after = data_bytes(two_islands)
    assert after["from_workers"] - before["from_workers"] == 16 * MIB
    shared = after["from_workers_shared"] - before["from_workers_shared"]
    expected = {"shared": [16 * MIB], "streams": [0], "small-pool": [2 * MIB, 3 * MIB]}
    assert shared in expected[plane]


@by_any_plane
def test_counts_return_to_zero(two_islands: Cluster) -> None:
    before = used_bytes(two_islands)
    with session(two_islands) as client:
        chain_and_drop(two_islands, client, before)  # the client is then killed in mid-transfer
    wait_for("a killed client's arrays freed", lambda: used_bytes(two_islands) == before, 5)
    counters = two_islands.status()["counters"]
    assert counters["storages"] == 0 and counters["nodes"] == 0, counters


def chain_and_drop(two_islands: Cluster, client: Console, before: int) -> None:
    run(
        client,
        """
x = jax.device_put(noise(1 << 20), on[0])
for i in range(40): x = jax.device_put(x, on[(i + 1) % 4])
x.block_until_ready()
""",
    )
    wait_for("only the last array held", lambda: used_bytes(two_islands) == before + MIB, 10)
    run(client, "del x")
    wait_for("nothing held", lambda: used_bytes(two_islands) == before, 10)
    run(
        client, "x = jax.device_put(noise(1 << 24), on[0]); ys = [jax.device_put(x, s) for s in on]"
    )


@pytest.mark.faults
def test_shared_memory_is_used_again(new_cluster: NewCluster) -> None:
    cluster = new_cluster(1, 2, 2).start()
    pids = [worker["pid"] for worker in cluster.workers()]
    with session(cluster) as client:
        run(
            client,
            f"""
made = np.arange(16 * {MIB}, dtype="float32")
x = jax.jit(lambda: jnp.arange(16 * {MIB}, dtype="float32"), out_shardings=on[0])()
y = jax.device_put(x, on[1]); y.block_until_ready()
""",
        )
        assert used_bytes(cluster) == 128 * MIB, "a view counts as memory of its device"
        first = shared_bytes(pids[1])
        assert first >= 64 * MIB and shared_bytes(pids[0]) == first, "the writer maps it too"
        for _ in range(8):
            run(client, "y = jax.device_put(x, on[1]); y.block_until_ready()")
        assert client.do("result = same(y, made)")
        assert shared_bytes(pids[1]) <= 3 * first, "the old array is freed a little late"
        run(client, "del y")
        wait_for("the array freed", lambda: used_bytes(cluster) == 64 * MIB, 10)


@pytest.mark.faults
def test_idle_shared_memory_is_given_back(new_cluster: NewCluster) -> None:
    """After copies, uploads and downloads, and after clients are killed in mid-upload and mid-download: on two clusters
    at the same time, because workers keep idle memory for ten seconds.
    """
    living, killed = (new_cluster(1, 2, 2).start() for _ in range(2))
    workers = {c.port: [worker["pid"] for worker in c.workers()] for c in (living, killed)}
    with session(living) as client, session(killed) as sender, session(killed) as reader:
        run(
            client,
            f"""
x = jax.jit(lambda: jnp.arange(16 * {MIB}, dtype="float32"), out_shardings=on[0])()
y = jax.device_put(x, on[1])
up = jax.device_put(noise(64 * {MIB}), devices[1])
down = np.asarray(jax.jit(lambda v: v ^ 1)(up))
jax.block_until_ready(y)
""",
        )
        assert all(shared_bytes(pid) >= 64 * MIB for pid in workers[living.port])
        run(client, "del x, y, up, down")
        run(sender, "jax.device_put(noise(8), devices[0]).block_until_ready()")  # opens the link
        run(sender, f"xs = [jax.device_put(noise(64 * {MIB}), d) for d in list(devices[:2]) * 4]")
        run(reader, DOWNLOAD_IN_THREADS.format(device=2))
        received = lambda: shared_bytes(workers[killed.port][1]) >= 64 * MIB  # noqa: E731
        wait_for("downloads in flight", received, 20)
        for victim in (sender, reader):
            os.kill(victim.pid, signal.SIGKILL)
        wait_for(
            "memory given back by both sides",
            lambda: not any(shared_bytes(pid) for pid in workers[living.port]),
            30,
        )
        assert client.do("result = len(jax.devices())") == 4, "it is still connected"
        wait_for(
            "the killed clients' bytes gone",
            lambda: not any(shared_bytes(pid) for pid in workers[killed.port]),
            30,
        )


@pytest.mark.faults
@pytest.mark.parametrize("plane", PLANES)
def test_uploads_are_written_into_the_workers_memory(new_cluster: NewCluster, plane: str) -> None:
    cluster = new_cluster(1, 1, 2, *PLANES[plane]).start()
    worker = cluster.workers()[0]["pid"]
    with session(cluster) as client:
        run(client, "jax.device_put(noise(8), devices[0]).block_until_ready()")  # opens the link
        for size in (64 << 10, 1 << 20, (5 << 20) + 2, 64 << 20):
            run(client, f"x = jax.device_put(noise({size}), devices[1]); x.block_until_ready()")
            assert client.do(f"result = same(x, noise({size}))")
            assert (shared_bytes(worker) >= size) == (plane == "shared")
            run(client, "del x")
        run(client, f"xs = [jax.device_put(noise(64 * {MIB}), d) for d in list(devices[:2]) * 4]")
    wait_for("a killed client's arrays gone", lambda: used_bytes(cluster) == 0, 10)


@pytest.mark.faults
@pytest.mark.parametrize("plane", PLANES)
def test_downloads_are_read_in_the_workers_memory(new_cluster: NewCluster, plane: str) -> None:
    cluster = new_cluster(1, 1, 2, *PLANES[plane]).start()
    sizes = [1000, 64 << 10, 1 << 20, (5 << 20) + 2, 64 << 20]
    with session(cluster) as client:
        run(client, "flip = jax.jit(lambda v: v ^ 1); np.asarray(flip(jax.device_put(noise(8))))")
        for size in sizes:
            run(
                client, f"x = flip(jax.device_put(noise({size}), devices[1])); host = np.asarray(x)"
            )
            assert client.do(f"result = same(host, noise({size}) ^ 1)")
        run(client, "y = flip(jax.device_put(noise(1 << 20), on[0])); host = np.asarray(y)")
        assert client.do("result = same(host, noise(1 << 20) ^ 1)")
    total = 8 + sum(sizes) + (1 << 20)
    wait_for("the bytes counted", lambda: data_bytes(cluster)["to_clients"] >= total, 5)
    counts = data_bytes(cluster)
    assert counts["to_clients"] == counts["from_clients"] == total
    shared = (total - 8 - 1000) if plane == "shared" else 0
    assert counts["to_clients_shared"] == counts["from_clients_shared"] == shared


@pytest.mark.faults
def test_many_downloads_at_once_take_their_share_of_shared_memory_TM_2(
    new_cluster: NewCluster,
) -> None:
    cluster = new_cluster(1, 1, 1, "--shared-memory", "48MB").start()
    worker = cluster.workers()[0]["pid"]
    with session(cluster) as client:
        run(
            client,
            f"""
from concurrent.futures import ThreadPoolExecutor
flip = jax.jit(lambda v: v ^ 1)
hosts = [noise(4 * {MIB} + i, seed=i) for i in range(16)]
xs = [flip(jax.device_put(h, devices[0])) for h in hosts]
with ThreadPoolExecutor(16) as pool: got = list(pool.map(np.asarray, xs))
good = [same(g, h ^ 1) for g, h in zip(got, hosts)]
""",
        )
        assert client.do("result = all(good) and len(good) == 16")
        assert shared_bytes(worker) <= 24 * MIB, "half of the memory is for clients"
        total = sum(4 * MIB + i for i in range(16))
        wait_for("the bytes counted", lambda: data_bytes(cluster)["to_clients"] >= total, 5)
        counts = data_bytes(cluster)
        assert counts["to_clients"] == total
        assert 0 < counts["to_clients_shared"] <= total


@pytest.mark.faults
def test_a_client_killed_in_mid_download_leaves_nothing(new_cluster: NewCluster) -> None:
    cluster = new_cluster(1, 1, 1).start()
    with session(cluster) as client:
        run(client, DOWNLOAD_IN_THREADS.format(device=0))
        counted = lambda: data_bytes(cluster)["to_clients_shared"] >= 64 * MIB  # noqa: E731
        wait_for("downloads in flight", counted, 20)
    wait_for("its arrays gone", lambda: used_bytes(cluster) == 0, 10)


@pytest.mark.faults
def test_a_worker_killed_in_mid_download_is_named_ER_1(faulty: Cluster) -> None:
    cluster = faulty
    with cluster.left_as_found(lambda: all_pairs(cluster)), session(cluster) as client:
        victim = worker_of(cluster, "island0/worker1")
        run(client, f"xs = [jax.device_put(noise(64 * {MIB}), devices[2]) + i for i in range(4)]")
        run(
            client,
            """
import threading
jax.block_until_ready(xs)
errors = []
def fetch(i):
    try: errors.append("" if same(xs[i], noise(64 << 20) + i) else "wrong bytes")
    except Exception as error: errors.append(str(error))
threads = [threading.Thread(target=fetch, args=(i,)) for i in range(4)]
for t in threads: t.start()
""",
        )
        os.kill(victim["pid"], signal.SIGKILL)
        run(client, "for t in threads: t.join(30)")
        for error in client.do("result = errors"):
            assert not error or ("DATA_LOSS" in error and "island0/worker1" in error), error
        wait_for_restart(cluster, victim)
        # The client may learn of the new process a moment later than `gangway status`.
        again = "x = jax.device_put(noise(1 << 20), devices[2]) + 1; result = same(x, noise(1 << 20) + 1)"
        wait_for("the new process is used", lambda: client.ask(again).get("ok") is True, 10)
        run(client, "del x, xs")
        wait_for("nothing held", lambda: used_bytes(cluster) == 0, 10)


@pytest.mark.faults
def test_a_donated_view_and_its_readers(new_cluster: NewCluster) -> None:
    """A program must not write into a donated view: other readers may still use its memory."""
    cluster = new_cluster(1, 2, 2).start()
    with session(cluster) as client:
        run(
            client,
            f"""
g = jax.jit(lambda v: v + 1, donate_argnums=0, out_shardings=on[1])
total = jax.jit(lambda v: v.astype("float32").sum())
x = jax.device_put(np.zeros(16 * {MIB}, "uint8"), on[0])
seen = []
for i in range(12):
    y = jax.device_put(x, on[1])
    before = total(y)
    back = jax.device_put(y, on[0])
    z = g(y)
    seen.append((float(before), int(np.asarray(back).max()), int(np.asarray(z).min())))
    del y, z, back
""",
        )
        assert client.do("result = seen") == [[0.0, 0, 1]] * 12


@pytest.mark.faults
def test_nothing_of_shared_memory_is_left_after_a_kill_of_all() -> None:
    def shared_on_the_machine() -> int:
        text = pathlib.Path("/proc/meminfo").read_text()
        line = next(line for line in text.splitlines() if line.startswith("Shmem:"))
        return int(line.split()[1]) * 1024

    before = set(os.listdir("/dev/shm"))
    cluster = Cluster(1, 2, 2).start()
    pids = [worker["pid"] for worker in cluster.workers()]
    try:
        with session(cluster) as client:
            run(client, f"x = jax.device_put(noise(512 * {MIB}), on[0])")
            run(client, "y = jax.device_put(x, on[1]); y.block_until_ready()")
            assert shared_bytes(pids[1]) >= 512 * MIB
            held = shared_on_the_machine()
            sockets = pathlib.Path("/proc/net/unix").read_text()
            assert all(f"@gangway-{pid}-" in sockets for pid in pids)
            for pid in cluster.processes():  # the supervisor too, so no process cleans up
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            wait_for("memory gone", lambda: shared_on_the_machine() < held - 400 * MIB, 10)
    finally:
        cluster.stop()
    assert not set(os.listdir("/dev/shm")) - before

    def sockets_left() -> bool:
        sockets = pathlib.Path("/proc/net/unix").read_text()
        return any(f"@gangway-{pid}-" in sockets for pid in pids)

    wait_for("sockets gone", lambda: not sockets_left(), 10)  # a killed process closes them last


@pytest.mark.faults
def test_poison_reaches_the_other_worker_as_the_same_error_ER_1(faulty: Cluster) -> None:
    cluster = faulty
    with cluster.left_as_found(lambda: all_pairs(cluster)), session(cluster) as client:
        run(client, "x = jax.device_put(np.ones(1024, 'float32'), on[0]); x.block_until_ready()")
        victim = worker_of(cluster, "island0/worker0")
        os.kill(victim["pid"], signal.SIGKILL)
        failed = client.ask("np.asarray(x)")
        assert "DATA_LOSS" in failed["error"] and "island0/worker0" in failed["error"], failed
        for to in (1, 2, 3):
            run(client, f"y = jax.device_put(x, on[{to}])")
            copied = client.ask("y.block_until_ready()")
            assert "DATA_LOSS" in copied["error"], copied
            assert "island0/worker0" in copied["error"], copied
        wait_for_restart(cluster, victim)
        run(client, "y = jax.device_put(jax.device_put(noise(4096), on[0]), on[3])")
        assert client.do("result = same(y, noise(4096))")


@pytest.mark.faults
@pytest.mark.parametrize("lost", [0, 3], ids=["sender", "receiver"])
def test_a_worker_killed_in_mid_transfer_is_named_ER_1(faulty: Cluster, lost: int) -> None:
    cluster = faulty
    with cluster.left_as_found(lambda: all_pairs(cluster)), session(cluster) as client:
        name = f"island{lost // 2}/worker{lost % 2}"
        victim = worker_of(cluster, name)
        run(client, f"x = jax.device_put(noise(64 * {MIB}), on[0]); x.block_until_ready()")
        run(client, "other = jax.device_put(noise(4096), on[1]); other.block_until_ready()")
        # Shared memory is resident in each process that has touched it, in the sender first.
        both = [worker_of(cluster, f"island{i}/worker{i}")["pid"] for i in (0, 1)]
        empty = sum(map(resident_bytes, both))
        run(client, "ys = [jax.device_put(x, on[3]) for _ in range(8)]")
        run(client, "w = jax.device_put(other, on[2])")
        wait_for("bytes in flight", lambda: sum(map(resident_bytes, both)) > empty + 32 * MIB, 5)
        os.kill(victim["pid"], signal.SIGKILL)
        began = time.monotonic()
        failed = client.ask("jax.block_until_ready(ys)")
        assert time.monotonic() - began < 10 * PATIENCE
        assert "DATA_LOSS" in failed["error"] and name in failed["error"], failed
        assert client.do("result = same(w, noise(4096))"), "other transfers go on (ER-2)"
        wait_for_restart(cluster, victim)
        run(client, "z = jax.device_put(jax.device_put(noise(4096), on[0]), on[3])")
        assert client.do("result = same(z, noise(4096))")
        run(client, "del x, ys, other, w, z")
        wait_for("nothing held", lambda: used_bytes(cluster) == 0, 10)
