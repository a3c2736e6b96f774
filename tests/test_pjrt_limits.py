"""What JAX asks of a PJRT plugin beside running programs, and the limits of the IFRT proxy's client that the plugin does
not have: attributes, memory statistics, serialized executables, layouts, profiles.
"""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
from collections.abc import Iterator

import pytest
from faultlib import Console
from harness import PATIENCE, PYTHON, Cluster, client_environment

BUDGET = 1 << 30


@pytest.fixture
def console(cluster: Cluster) -> Iterator[Console]:
    with Console(cluster, door="pjrt") as opened:
        yield opened


def test_the_workers_stablehlo_versions_are_jaxs(console: Console) -> None:
    console.do("from jax._src import xla_bridge")
    console.do("client = xla_bridge.get_backend('gangway')")
    version = console.do("result = list(client.stablehlo_current_version)")
    assert len(version) == 3 and version[0] >= 1, version
    assert console.do("result = list(client.stablehlo_minimum_version)") <= version


def test_memory_stats_are_those_of_the_ledger() -> None:
    cluster = Cluster(1, 1, 2, "--memory", "1GB").start()
    try:
        with Console(cluster, door="pjrt") as client:
            client.do("one, other = jax.devices()")
            before = client.do("result = one.memory_stats()")
            client.do("x = jax.device_put(np.ones(1 << 20, np.float32), one).block_until_ready()")
            held = client.do("result = one.memory_stats()")
            assert held["bytes_in_use"] - before["bytes_in_use"] == 4 << 20
            assert held["peak_bytes_in_use"] >= held["bytes_in_use"]
            assert held["bytes_limit"] in (10**9, BUDGET)
            assert held["bytes_reservable_limit"] == held["bytes_limit"]
            assert held["bytes_reserved"] == 0
            assert client.do("result = other.memory_stats()")["bytes_in_use"] == 0
            client.do("del x")
            client.do("jax.device_put(np.ones(1), one).block_until_ready()")
            after = client.do("result = one.memory_stats()")
            assert after["bytes_in_use"] < 4 << 20
            assert after["peak_bytes_in_use"] >= 4 << 20
            # Many at once share an answer, so that none is left without one.
            client.do("from concurrent.futures import ThreadPoolExecutor")
            client.do(
                "result = len(list(ThreadPoolExecutor(32).map(lambda _: one.memory_stats(), range(200))))"
            )
    finally:
        cluster.stop()


CACHED = """
import json, sys
import gangway
gangway.connect()
import jax, jax.numpy as jnp, numpy as np
jax.config.update("jax_compilation_cache_dir", sys.argv[1])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
heard = []
jax.monitoring.register_event_listener(lambda name, **_: heard.append(name))
mesh = jax.make_mesh((8,), ("d",))
s = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("d"))
x = jax.device_put(np.arange(16, dtype=np.float32), s)
y = jax.jit(lambda x: jnp.sin(x).sum() + x, donate_argnums=0)(x)
print(json.dumps({
    "sum": float(np.asarray(y).sum()),
    "hits": heard.count("/jax/compilation_cache/cache_hits"),
    "misses": heard.count("/jax/compilation_cache/cache_misses"),
}))
"""


def compiles(cluster: Cluster, folder: pathlib.Path) -> int:
    """How many programs the cluster's compiler has compiled: its flight recorder has each."""
    out = folder / "trace.json"
    ran = cluster.command("trace", "--port", str(cluster.port), "--out", str(out))
    assert ran.returncode == 0, ran.stderr
    events = json.loads(out.read_text())["traceEvents"]
    return sum(event["ph"] == "X" and event["name"] == "compile" for event in events)


def test_jaxs_persistent_cache_compiles_nothing_twice(tmp_path: pathlib.Path) -> None:
    cluster = Cluster(1, 1, 8).start()
    try:

        def run() -> dict[str, float]:
            ran = subprocess.run(
                [PYTHON, "-c", CACHED, str(tmp_path / "cache")],
                env=client_environment(cluster.port, "pjrt"),
                capture_output=True,
                text=True,
                timeout=60 * PATIENCE,
            )
            assert ran.returncode == 0, ran.stderr
            found: dict[str, float] = json.loads(ran.stdout)
            return found

        first = run()
        assert first["hits"] == 0 and first["misses"] > 0
        compiled = compiles(cluster, tmp_path)
        assert compiled > 0
        second = run()
        assert second["misses"] == 0 and second["hits"] == first["misses"]
        assert second["sum"] == first["sum"]
        assert compiles(cluster, tmp_path) == compiled
    finally:
        cluster.stop()


def test_serialized_executables_are_loaded_and_hostile_ones_refused(console: Console) -> None:
    console.do("from jax.experimental import serialize_executable as s")
    console.do("one = jax.devices()[:1]")
    console.do("c = jax.jit(lambda x: x * 3).lower(np.ones(4, np.float32)).compile()")
    console.do("payload = s.serialize(c)")
    console.do("again = s.deserialize_and_load(*payload, execution_devices=one)")
    assert console.do("result = np.asarray(again(np.ones(4, np.float32))).tolist()") == [3] * 4
    console.do("from jax._src import xla_bridge, compiler")
    console.do("client = xla_bridge.get_backend('gangway')")
    console.do("raw = client.serialize_executable(c.runtime_executable())")
    console.do("devices = c.runtime_executable().local_devices()")
    console.do("import jaxlib; DeviceList = jaxlib._jax.DeviceList")
    console.do(
        "load = lambda b: client.deserialize_executable(b, DeviceList(tuple(devices)), None)"
    )
    console.do("load(raw)")
    for bad, words in [
        ("raw.replace(b'GANGWAYP3', b'JANGWAYP2')", "no executable that Gangway serialized"),
        ("raw.replace(b'GANGWAYP3', b'GANGWAYP4')", "another version of Gangway"),
        ("raw[:raw.index(b'GANGWAYP3') + 40]", "cut short"),
        ("raw[:-1]", "damaged"),
        ("raw[:-9] + b'x' + raw[-8:]", "damaged"),
    ]:
        said = console.ask(f"load({bad})")
        assert words in said.get("error", ""), (bad, said)


def test_layouts_of_compiled_functions(console: Console) -> None:
    console.do("c = jax.jit(lambda x: (x.T, x.sum())).lower(np.ones((4, 8), np.float32)).compile()")
    console.do("layouts = lambda fs: [f.layout.major_to_minor for f in jax.tree.leaves(fs)]")
    assert console.do("result = layouts(c.input_formats)") == [[0, 1]]
    assert console.do("result = layouts(c.output_formats)") == [[0, 1], []]
    assert console.do("result = [o.shape for o in c.out_info]") == [[8, 4], []]
    console.do("x = jax.device_put(np.ones((2, 3, 4), np.float32))")
    assert console.do("result = x.format.layout.major_to_minor") == [0, 1, 2]


def test_the_compiler_chooses_row_major_for_auto(console: Console) -> None:
    console.do("from jax.experimental.layout import Format, Layout; auto = Format(Layout.AUTO)")
    console.do("x = np.arange(32, dtype=np.float32).reshape(4, 8)")
    console.do("j = jax.jit(lambda x: (x.T, x), in_shardings=auto, out_shardings=auto)")
    console.do("l = j.lower(jax.ShapeDtypeStruct(x.shape, x.dtype)); before = l.as_text()")
    console.do("c = l.compile(); layouts = lambda fs: [f.layout.major_to_minor for f in fs]")
    assert console.do("result = layouts(c.input_formats[0] + c.output_formats)") == [[0, 1]] * 3
    console.do("y, z = c(jax.device_put(x, c.input_formats[0][0]))")
    assert console.do("result = [y.format == c.output_formats[0], np.array_equal(y, x.T)]") == [
        True,
        True,
    ]
    assert console.do("result = l.as_text() == before and 'auto' in before")


POINTED = """
import ctypes
def pointed(x):
    size = x.on_device_size_in_bytes()
    return np.frombuffer((ctypes.c_char * size).from_address(x.unsafe_buffer_pointer()), x.dtype)
"""

LAYOUTS = """
from jax.experimental import serialize_executable
from jax.experimental.layout import Format, Layout
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P, SingleDeviceSharding
mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
one, over = SingleDeviceSharding(jax.devices()[0]), NamedSharding(mesh, P("x", "y"))
columns = {"one": Format(Layout((1, 0)), one), "over": Format(Layout((1, 0)), over)}
a = np.arange(128, dtype=np.float32).reshape(16, 8)
def order(x): return x.format.layout.major_to_minor
def same(x, y): return np.array_equal(np.asarray(x).astype(complex), y.astype(complex))
def found(kind):
    c = columns[kind]
    x = jax.device_put(a, c)
    f = jax.jit(lambda x: x.T * 2, in_shardings=c, out_shardings=c)
    compiled = f.lower(x).compile()
    devices = sorted(c.sharding.device_set, key=lambda d: d.id)
    stored = serialize_executable.serialize(compiled)
    loaded = serialize_executable.deserialize_and_load(*stored, execution_devices=devices)
    assert order(x) == order(x.addressable_shards[-1].data) == (1, 0) and same(x, a)
    for y in (f(x), f(a), compiled(x), loaded(x)):
        assert order(y) == (1, 0) and same(y, a.T * 2), order(y)
    assert [each.layout.major_to_minor for each in compiled.input_formats[0]] == [(1, 0)]
    assert same(jax.jit(lambda x: x + 1)(x), a + 1) and same(x[2:5], a[2:5]) and float(x[3, 5]) == a[3, 5]
    assert order(jax.jit(lambda x: x + 1)(x)) == (0, 1)
    donated = jax.jit(lambda x: x + 1, donate_argnums=0, in_shardings=c, out_shardings=c)(x)
    assert x.is_deleted() and order(donated) == (1, 0) and same(donated, a + 1)
    assert order(jax.make_array_from_callback(a.shape, c, lambda i: a[i])) == (1, 0)
"""


def test_layouts_of_a_scripts_own_are_labels_of_arrays(console: Console) -> None:
    console.do(f"exec({LAYOUTS!r}, globals())")
    console.do("found('one'); found('over')")
    # Where they are seen as they lie on the device, and moved.
    console.do(f"exec({POINTED!r}, globals()); x = jax.device_put(a, columns['one'])")
    assert console.do("result = np.asarray(x).strides") == [4, 64]
    assert console.do("result = np.array_equal(pointed(x), a.T.ravel())")
    assert console.do("result = same(np.from_dlpack(x), a)")
    console.do("moved = jax.device_put(x, jax.devices()[5])")
    assert console.do("result = [order(moved), same(moved, a)]") == [[1, 0], True]
    # Of three dimensions, of every size of elements, and empty.
    console.do("cube = Format(Layout((1, 2, 0)), one)")
    for dtype in ("int4", "float4_e2m1fn", "bool", "bfloat16", "float32", "complex64"):
        console.do(f"v = (np.arange(24) % 5).reshape(2, 3, 4).astype({dtype!r})")
        console.do("x = jax.device_put(v, cube); y = jax.jit(lambda x: x)(x)")
        assert console.do("result = [order(x), same(x, v), same(y, v)]") == [[1, 2, 0], True, True]
    assert console.do("result = order(jax.device_put(a[:0], columns['one']))") == [1, 0]
    said = console.ask("jax.device_put(a, Format(Layout((0, 1), tiling=((2, 2),)), one))")["error"]
    assert "tiles or padding: leave them to XLA" in said
    said = console.ask("memoryview(jax.device_put(a, columns['one']))")["error"]
    assert "non default layout" in said  # jaxlib's own text


def test_a_profile_has_the_clusters_devices_and_this_sessions_runs_OB_3(
    cluster: Cluster, console: Console, tmp_path: pathlib.Path
) -> None:
    with Console(cluster, door="pjrt") as other:
        other.do("g = jax.jit(lambda x: x - 1); x = jnp.ones(8)")
        other.do("def someone_elses(x): return x - 1")
        other.do("g = jax.jit(someone_elses); g(x).block_until_ready()")
        console.do("def my_step(x): return jnp.sin(x) @ x")
        console.do("f = jax.jit(my_step); x = jax.device_put(np.ones((64, 64), np.float32))")
        console.do("f(x).block_until_ready()")
        console.do(f"jax.profiler.start_trace({str(tmp_path)!r})")
        console.do("for _ in range(3): f(x).block_until_ready()")
        other.do("for _ in range(3): g(x).block_until_ready()")
        console.do("jax.profiler.stop_trace()")
    console.do("import glob; from jax.profiler import ProfileData")
    console.do(f"path, = glob.glob({str(tmp_path)!r} + '/**/*.xplane.pb', recursive=True)")
    console.do("planes = [p for p in ProfileData.from_file(path).planes if 'Gangway' in p.name]")
    assert console.do("result = len(planes)") == 8
    console.do("events = [e for p in planes for l in p.lines for e in l.events]")
    names = console.do("result = [e.name for e in events]")
    assert len([name for name in names if "my_step" in name]) == 3, names
    assert not [name for name in names if "someone_elses" in name], names
    assert console.do("result = all(e.duration_ns > 0 for e in events)")
    # JAX makes times relative to the profile's start.
    console.do("begins = sorted(e.start_ns for e in events)")
    assert console.do("result = 0 <= begins[0] and begins[-1] < 60e9")


def test_results_in_pinned_host(console: Console) -> None:
    """XLA's CPU plugin refuses such programs, through the IFRT proxy too."""
    console.do("from jax.sharding import NamedSharding, PartitionSpec as P, SingleDeviceSharding")
    console.do(
        "one = SingleDeviceSharding(jax.devices()[0]); host = one.with_memory_kind('pinned_host')"
    )
    console.do("x = jax.device_put(np.arange(8, dtype=np.float32), one)")
    console.do("y = jax.jit(lambda x: x + 1, out_shardings=host)(x)")
    assert console.do("result = y.sharding.memory_kind") == "pinned_host"
    assert console.do("result = np.asarray(y).tolist()") == list(range(1, 9))
    console.do("both = jax.jit(lambda x: (x, x * 2), out_shardings=(one, host))(x)")
    kinds = "result = [a.sharding.memory_kind for a in both]"
    assert console.do(kinds) == ["device", "pinned_host"]
    console.do("both = jax.jit(lambda y: (y * 2, y), out_shardings=(one, host))(y)")
    assert console.do(kinds) == ["device", "pinned_host"]
    assert console.do("result = np.asarray(both[0]).tolist()") == list(range(2, 18, 2))
    # Inside of a program, and back; each shard of a sharded result; of a program that was serialized.
    console.do("z = jax.jit(lambda x: jax.device_put(jax.device_put(x, host) + 1, one) + 1)(x)")
    assert console.do("result = [z.sharding.memory_kind, float(np.asarray(z)[0])]") == ["device", 2]
    console.do("s = NamedSharding(jax.make_mesh((8,), ('d',)), P('d'), memory_kind='pinned_host')")
    console.do("f = jax.jit(lambda x: x * 2, out_shardings=s); w = f(np.asarray(x))")
    console.do("kinds = {a.data.sharding.memory_kind for a in w.addressable_shards}")
    assert console.do("result = list(kinds)") == ["pinned_host"]
    console.do("from jax.experimental import serialize_executable")
    console.do("c = f.lower(jax.device_put(x, s.with_memory_kind('device'))).compile()")
    console.do(
        "again = serialize_executable.deserialize_and_load(*serialize_executable.serialize(c))"
    )
    console.do("w = again(jax.device_put(x, s.with_memory_kind('device')))")
    assert console.do("result = [w.sharding.memory_kind, float(np.asarray(w)[3])]") == [
        "pinned_host",
        6,
    ]
    # The local CPU's own programs are JAX's affair.
    console.do("v = jax.jit(lambda x: x + 1)(jax.device_put(1.0, jax.devices('host')[0]))")
    assert console.do("result = float(v)") == 2


def test_dlpack_exports(console: Console) -> None:
    console.do("x = jax.device_put(np.arange(6, dtype=np.float32).reshape(2, 3))")
    console.do("a = np.from_dlpack(x); b = np.from_dlpack(x)")
    assert console.do("result = [a.tolist(), b.tolist()]") == [[[0, 1, 2], [3, 4, 5]]] * 2
    console.do("x.delete(); del x, b")  # the export is independent of the array
    assert console.do("result = a.tolist()") == [[0, 1, 2], [3, 4, 5]]
    assert console.do("result = np.from_dlpack(jnp.ones((0, 3))).shape") == [0, 3]
    console.do("y = jnp.ones(3); y.delete()")
    assert "deleted" in console.ask("np.from_dlpack(y)")["error"]


ALIGNED = """
from jax.dlpack import from_dlpack
def at(x, offset):
    \"\"\"A copy of `x`, in its order, whose address is `offset` beyond a multiple of 64.\"\"\"
    whole = np.zeros(x.nbytes + 128, np.uint8)
    begin = -whole.ctypes.data % 64 + offset
    copy = np.ndarray(x.shape, x.dtype, whole[begin:], 0, x.strides)
    copy[...] = x
    return copy
"""


def test_dlpack_imports_are_the_clusters(console: Console) -> None:
    console.do(f"exec({ALIGNED!r}, globals()); import sys; one = jax.devices()[0]")
    console.do("a = np.arange(12, dtype=np.float32).reshape(3, 4)")
    for source in ("a", "np.asfortranarray(a)", "a.astype('int8')", "a > 3", "a[:0]", "a.T + 1j"):
        for offset, copies in ((0, (None, True, False)), (16, (None, True))):
            for copy in copies:
                console.do(f"x = at({source}, {offset}); y = from_dlpack(x, copy={copy})")
                said = console.do("result = [y.devices() == {one}, np.array_equal(y, x)]")
                assert said == [True, True], (source, copy)
    said = console.ask("from_dlpack(at(a, 16), copy=False)")["error"]
    assert "is not aligned to 64 bytes" in said and "copy=False" in said  # as in-process
    console.do("a = at(a, 0)")
    # The array's memory is the caller's again, and what is written there later is not in the import.
    console.do("held = sys.getrefcount(a); y = from_dlpack(a); a[:] = 7")
    assert console.do("result = sys.getrefcount(a) - held") == 0
    assert console.do("result = (y + jnp.ones(4)).tolist()[2]") == [9, 10, 11, 12]
    console.do("y = jnp.from_dlpack(a, device=jax.devices()[3])")
    assert console.do("result = [d.id for d in y.devices()]") == [3]
    assert console.do("result = jnp.from_dlpack(y).tolist()[0]") == [7] * 4
    said = console.ask("from_dlpack(a[:, ::2])")["error"]
    assert "trivial (compact) striding" in said  # jaxlib's own text, as in-process


def test_addresses_of_arrays_last_as_long_as_they_do(console: Console) -> None:
    """Of a small array, which is copied, and of one that the worker's memory holds; awaited or not."""
    console.do(f"exec({POINTED!r}, globals()); f = jax.jit(lambda x: x + 1)")
    for count in (3, 1 << 20):
        console.do(f"x = np.arange({count}, dtype=np.float32)")
        for wait in ("", ".block_until_ready()"):
            console.do(f"y = f(x){wait}; at = pointed(y)")
            assert console.do("result = np.array_equal(at, x + 1)")
            assert console.do("result = np.asarray(y).ctypes.data == at.ctypes.data")
            console.do("more = [np.asarray(f(x * i)) for i in range(4)]")
            assert console.do("result = np.array_equal(at, x + 1)")
            assert console.do("result = y.unsafe_buffer_pointer() == at.ctypes.data")
    console.do("s = jax.device_put(np.arange(8.0), jax.devices()[5])")
    assert console.do("result = pointed(s).tolist()") == list(range(8))
    console.do("s = jnp.array([1, -2], jnp.int4)")
    assert console.do("result = pointed(s).tolist()") == [1, -2]
    console.do("y.delete()")
    assert "deleted" in console.ask("y.unsafe_buffer_pointer()")["error"]
    # Python's lock is held in the call, so the callback of a pending program cannot run.
    console.do("import threading; go = threading.Event()")
    console.do("def host(v): go.wait(60); return v")
    console.do("z = jax.jit(lambda x: jax.pure_callback(host, x, x))(jnp.ones(3))")
    assert "x.block_until_ready()" in console.ask("z.unsafe_buffer_pointer()")["error"]
    console.do("go.set(); z.block_until_ready()")
    assert console.do("result = pointed(z).tolist()") == [1, 1, 1]


def test_arrays_are_read_in_place(console: Console) -> None:
    """Views by the buffer protocol and NumPy, of arrays that are ready and that are not, small and large."""
    console.do("f = jax.jit(lambda x: x + 1)")
    for count in (3, 1 << 20):
        console.do(f"x = np.arange({count}, dtype=np.float32)")
        for wait in ("", ".block_until_ready()"):
            console.do(f"y = f(x){wait}; v = memoryview(y)")
            said = console.do("result = [v.shape, v.readonly, float(np.asarray(v)[-1])]")
            assert said == [[count], True, count]
            assert console.do("result = np.array_equal(np.asarray(y), x + 1)")
            # What was read stays when the array goes, and a later array is not written over it.
            console.do("y.delete(); z = f(f(x)).block_until_ready(); np.asarray(z)")
            assert console.do("result = np.array_equal(np.asarray(v), x + 1)")
            assert "Array is null" in console.ask("memoryview(y)")["error"]  # jaxlib's own text
    assert console.do("result = memoryview(jnp.ones((0, 3))).shape") == [0, 3]
    console.do("s = jax.device_put(np.arange(8.0), jax.devices()[1]); s.copy_to_host_async()")
    assert console.do("result = [np.asarray(s).tolist(), float(s[3])]") == [list(range(8)), 3]
    # Readiness is that of the array or of its copy, whichever was asked for first: thousands of races of the two.
    console.do("n = sum(int(f(np.int32(i))) != i + 1 for i in range(3000))")
    assert console.do("result = n") == 0


def test_what_is_read_in_place_leaves_room_for_others() -> None:
    """The workers lend a part of their memory; what is read beyond that is copied, and uploads still find room."""
    cluster = Cluster(1, 1, 2, "--memory", "1GB", "--staging", "64MB").start()
    try:
        with (
            Console(cluster, door="pjrt") as client,
            Console(cluster, door="pjrt") as other,
        ):
            for each in (client, other):
                each.do("f = jax.jit(lambda x: x + 1)")
                each.do("ready = [f(np.full(1 << 20, i, np.float32)) for i in range(16)]")
                each.do("held = [np.asarray(x.block_until_ready()) for x in ready]")
                each.do("x = f(np.zeros(8 << 20, np.float32)).block_until_ready()")
                each.do("big = np.asarray(x)")
                assert each.do("result = [float(h[-1]) for h in held]") == list(range(1, 17))
                assert each.do("result = float(big.sum())") == 8 << 20
    finally:
        cluster.stop()


def test_the_log_of_a_worker_is_gangways_alone(cluster: Cluster, console: Console) -> None:
    """XLA writes lines for each client, and blocks for each execute that it refuses."""
    said = console.ask(
        "jax.jit(lambda x: jax.pure_callback(lambda a: 1 / 0, x, x))(jnp.ones(3)).block_until_ready()"
    )
    assert "ZeroDivisionError" in said["error"]
    logs = cluster.logs(1 << 20)
    (worker,) = re.findall(r"^--- island0-worker0\.log\n(.*?)(?=^--- |\Z)", logs, re.M | re.S)
    assert "registers" in worker and not re.search(r"^[IWE]\d{4} ", worker, re.M), worker


def test_live_arrays_and_cost_analysis(console: Console) -> None:
    console.do("x = jax.device_put(np.ones((8, 8), np.float32))")
    assert console.do("result = any(a is x for a in jax.live_arrays())")
    console.do("del x")
    assert console.do("result = any(a.shape == (8, 8) for a in jax.live_arrays())") is False
    console.do("lowered = jax.jit(lambda x: x @ x).lower(np.ones((8, 8), np.float32))")
    # jaxlib asks no plugin about a program that is not compiled.
    assert console.do("result = lowered.cost_analysis()") is None
    assert console.do("result = lowered.compile().cost_analysis()['flops']") > 0
