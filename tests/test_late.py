"""A gang that stands in a collective of Gangway's own: past the limit, it fails with the collective, its source line
and the late member; the log and the trace show the wait. `gangway why` names them before, for each reason:
test_silence.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import time
from collections.abc import Callable, Iterator

import pytest
from faultlib import Console, elapsed
from harness import PATIENCE, Cluster

pytestmark = [pytest.mark.faults, pytest.mark.timeout(180)]
NewCluster = Callable[..., Cluster]
# In a callback, position 3 stands for as long as the FIFO exists.
PROGRAM = """
import os
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

devices = jax.devices()
mesh = Mesh(np.array(devices), ("d",))
row = NamedSharding(mesh, P("d"))
gate = os.path.dirname(__file__) + "/gate"

def over_all(body):
    return jax.jit(jax.shard_map(body, mesh=mesh, in_specs=P("d"), out_specs=P("d"), check_vma=False))

def add(x):
    doubled = x * 2
    return doubled + jax.lax.psum(doubled, "d")

def stand(x):
    if os.path.exists(gate): open(gate).close()
    return x

def pause(x, position):
    return stand(x) if position == 3 else x

def pause_and_add(x):
    x = jax.pure_callback(pause, jax.ShapeDtypeStruct(x.shape, x.dtype), x, jax.lax.axis_index("d"))
    return x + jax.lax.psum(x, "d")

step = over_all(add)
pausing_step = over_all(pause_and_add)
slow = jax.jit(lambda v: jax.pure_callback(stand, v, v))
x = jax.device_put(np.ones(len(devices), "float32"), row)
parts = [jax.device_put(np.ones(1, "float32"), device) for device in devices]
whole = lambda parts: jax.make_array_from_single_device_arrays((len(devices),), row, parts)
"""


def line_of(words: str) -> int:
    return 1 + next(i for i, line in enumerate(PROGRAM.splitlines()) if words in line)


def load(client: Console, folder: pathlib.Path, *warm: str) -> None:
    """Imports the program in a client, so that its lines have a file, and runs each part of it once."""
    (folder / "late_program.py").write_text(PROGRAM)
    client.do(f"import sys; sys.path.insert(0, {str(folder)!r}); import late_program as p")
    assert client.do("result = np.asarray(p.step(p.x)).tolist()", 60) == [10.0] * 4
    for each in warm:
        client.do(f"jax.block_until_ready({each})", 60)


@contextlib.contextmanager
def held(folder: pathlib.Path) -> Iterator[None]:
    """While the block runs, the program's callbacks do not return."""
    gate = folder / "gate"
    os.mkfifo(gate)
    try:
        yield
    finally:
        writer = os.open(gate, os.O_RDWR)  # releases a reader, and never blocks itself
        gate.unlink()
        os.close(writer)


def at(folder: pathlib.Path, words: str) -> str:
    return f" at {folder / 'late_program.py'}:{line_of(words)}"


def test_past_the_limit_the_gang_fails_by_name_and_the_trace_shows_the_wait(
    new_cluster: NewCluster, tmp_path: pathlib.Path
) -> None:
    limits = ("--late-after", "1", "--collective-limit", "3")
    cluster = new_cluster(1, 2, 2, *limits).start()
    with Console(cluster, door="pjrt") as client, contextlib.ExitStack() as stack:
        load(client, tmp_path, "p.pausing_step(p.x)")
        place = at(tmp_path, 'return x + jax.lax.psum(x, "d")')
        stack.enter_context(held(tmp_path))
        began = time.monotonic()
        answer = client.ask("jax.block_until_ready(p.pausing_step(p.x))")
        took = elapsed(began)
        error = str(answer)
        assert "DEADLINE_EXCEEDED" in error and place in error, error
        assert "device 3 of island0/worker1, which waits for client" in error, error
        assert 3 <= took < 10 * PATIENCE, took  # the callback still stands
        cluster.wait_for_words("has stood for 1.", 5)
        assert client.do("result = np.asarray(p.step(p.x)).tolist()") == [10.0] * 4

        out = tmp_path / "trace.json"
        cluster.command("trace", "--out", str(out), "--port", str(cluster.port), timeout_s=20)
        events = json.loads(out.read_text())["traceEvents"]
    named = [e for e in events if e["ph"] == "X" and e["name"].endswith(place)]
    tracks = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    long = [e for e in named if e["dur"] > 2e6]  # of those that waited until the limit
    assert {tracks[e["pid"], e["tid"]] for e in long} == {
        f"collectives of device {i}" for i in range(3)
    }, named
    assert all(e["name"].startswith("4 bytes, ") for e in named), named
    assert any(e["name"].endswith("short collectives") for e in events), "the others"
