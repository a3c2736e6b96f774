"""A gang that stands in a collective of Gangway's own: `gangway why` names the collective, its source line and each
missing member with the reason; the log does, too; past the limit the gang fails with the same words.
"""

from __future__ import annotations

import json
import os
import pathlib
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from faultlib import Blocker, Console, elapsed, stop_process
from harness import PATIENCE, Cluster, wait_for, why

pytestmark = [pytest.mark.faults, pytest.mark.timeout(180)]
NewCluster = Callable[..., Cluster]
NAMED_S = 6  # by `gangway why`
STREAMS = ("--shared-memory", "0")
# Without GANGWAY_NIGHTLY, members meet in shared memory only.
by_each_way = pytest.mark.parametrize(
    "options",
    [(), STREAMS] if os.environ.get("GANGWAY_NIGHTLY") else [()],
    ids=lambda options: "streams" if options else "shared",
)
PROGRAM = """
import time
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

devices = jax.devices()
mesh = Mesh(np.array(devices), ("d",))
row = NamedSharding(mesh, P("d"))
wanted_s = 0.0

def over_all(body):
    return jax.jit(jax.shard_map(body, mesh=mesh, in_specs=P("d"), out_specs=P("d"), check_vma=False))

def add(x):
    doubled = x * 2
    return doubled + jax.lax.psum(doubled, "d")

def pause(x, position):
    if position == 3: time.sleep(wanted_s)
    return x

def pause_and_add(x):
    x = jax.pure_callback(pause, jax.ShapeDtypeStruct(x.shape, x.dtype), x, jax.lax.axis_index("d"))
    return x + jax.lax.psum(x, "d")

step = over_all(add)
pausing_step = over_all(pause_and_add)
slow = jax.jit(lambda v: jax.pure_callback(lambda a: (time.sleep(wanted_s), a)[1], v, v))
x = jax.device_put(np.ones(len(devices), "float32"), row)
parts = [jax.device_put(np.ones(1, "float32"), device) for device in devices]
whole = lambda parts: jax.make_array_from_single_device_arrays((len(devices),), row, parts)
"""


def line_of(words: str) -> int:
    return 1 + next(i for i, line in enumerate(PROGRAM.splitlines()) if words in line)


@pytest.fixture
def program(tmp_path: pathlib.Path) -> Iterator[Callable[[Console], None]]:
    """Imports the program in a client, so that its lines have a file, and runs each part of it once."""
    (tmp_path / "late_program.py").write_text(PROGRAM)

    def load(client: Console, *warm: str) -> None:
        client.do(f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import late_program as p")
        assert client.do("result = np.asarray(p.step(p.x)).tolist()", 60) == [10.0] * 4
        for each in warm:
            client.do(f"jax.block_until_ready({each})", 60)

    yield load


def standing(
    cluster: Cluster, cause: str, since: float, waiting: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The wait of the gang that stands in a collective, and its missing members with this cause, within the limit.
    `waiting`: how many members must be reported as waiting. Each worker reports its own, in its heartbeats.
    """
    seen: list[str] = []
    while elapsed(since) < NAMED_S * PATIENCE:
        for wait in why(cluster):
            for missing in wait["missing"] if wait["reason"] == "collective" else []:
                seen.append(wait["text"])
                if missing["cause"] == cause and wait["members_waiting"] == waiting:
                    print(f"{cause} named after {elapsed(since):.2f} s: {wait['text']}")
                    return wait, missing
        time.sleep(0.05)
    raise AssertionError(f"{cause} was not named, with {waiting} waiting: {seen[-3:]}")


def at(folder: pathlib.Path, words: str) -> str:
    return f" at {folder / 'late_program.py'}:{line_of(words)}"


@pytest.mark.alone
@by_each_way
def test_a_stopped_member_and_the_line_are_named(
    new_cluster: NewCluster,
    tmp_path: pathlib.Path,
    program: Callable[..., None],
    options: tuple[str, ...],
) -> None:
    cluster = new_cluster(1, 2, 2, *options).start()
    with Console(cluster) as client:
        program(client)
        victim = cluster.workers()[1]
        stop_process(victim["pid"])
        began = time.monotonic()
        client.send("jax.block_until_ready(p.step(p.x))")
        wait, missing = standing(cluster, "silent", began, waiting=2)
        assert missing["worker"] == victim["name"] and missing["devices"] == [2, 3], missing
        assert wait["collective"].endswith(at(tmp_path, "jax.lax.psum(doubled")), wait
        assert wait["program"] == "jit_add", wait
        assert wait["members"] == 4, wait
        error = client.answer(20)["error"]  # it is declared dead
        assert victim["name"] in error, error
        assert wait["collective"] not in str(why(cluster)), "no gang stands any more"
        if pathlib.Path(f"/proc/{victim['pid']}").exists():
            os.kill(victim["pid"], signal.SIGCONT)


@pytest.mark.alone
@by_each_way
def test_a_blocked_execute_thread_is_named(
    new_cluster: NewCluster,
    tmp_path: pathlib.Path,
    program: Callable[..., None],
    options: tuple[str, ...],
) -> None:
    cluster = new_cluster(1, 2, 2, *Blocker.FLAGS, *options)
    blocker = Blocker(cluster, tmp_path)
    cluster.start()
    with Console(cluster) as client:
        program(client)
        victim = cluster.workers()[1]
        with blocker.blocked(victim["pid"]):
            began = time.monotonic()
            client.send("result = np.asarray(p.step(p.x)).tolist()")
            wait, missing = standing(cluster, "stuck", began, waiting=2)
            assert missing["worker"] == victim["name"] and missing["devices"] == [2, 3], missing
            assert missing["for_gang"] == wait["gang"], missing
            assert wait["collective"].endswith(at(tmp_path, "jax.lax.psum(doubled")), wait
            # Those that wait for it are not stuck.
            stuck = [w["name"] for w in cluster.workers() if any(d["stuck"] for d in w["devices"])]
            assert stuck == [victim["name"]], stuck
        assert client.answer(20) == {"ok": [10.0] * 4}
        # The worker's next heartbeat says that its devices are not stuck any more.
        wait_for("nothing to explain", lambda: why(cluster) == [], 5)


@pytest.mark.alone
@by_each_way
def test_a_late_input_a_gang_ahead_and_a_client_are_told_apart(
    new_cluster: NewCluster,
    tmp_path: pathlib.Path,
    program: Callable[..., None],
    options: tuple[str, ...],
) -> None:
    cluster = new_cluster(1, 2, 2, *options).start()
    with Console(cluster, door="pjrt") as client:
        program(client, "p.slow(p.parts[3])", "p.pausing_step(p.x)")
        client.do("p.wanted_s = 5.0")

        began = time.monotonic()
        client.send(
            "late = p.slow(p.parts[3]); y = p.step(p.whole(p.parts[:3] + [late])); "
            "result = np.asarray(y).tolist()"
        )
        wait, missing = standing(cluster, "input", began, waiting=3)
        assert missing["devices"] == [3] and missing["worker"] == "island0/worker1", missing
        assert "lambda" in missing["for_program"] and missing["for_gang"] == wait["for_gang"], wait
        assert wait["collective"].endswith(at(tmp_path, "jax.lax.psum(doubled")), wait
        assert client.answer(20) == {"ok": [10.0] * 4}

        began = time.monotonic()
        client.send("z = p.slow(p.parts[3]); result = np.asarray(p.step(p.x)).tolist()")
        wait, missing = standing(cluster, "behind_gang", began, waiting=3)
        assert missing["devices"] == [3] and missing["for_gang"] == wait["for_gang"] != 0, missing
        assert "lambda" in missing["for_program"], missing
        assert client.answer(20) == {"ok": [10.0] * 4}

        began = time.monotonic()
        client.send("result = np.asarray(p.pausing_step(p.x)).tolist()")
        wait, missing = standing(cluster, "callback", began, waiting=3)
        assert missing["devices"] == [3] and missing["client"], missing
        assert wait["collective"].endswith(at(tmp_path, 'return x + jax.lax.psum(x, "d")')), wait
        assert client.answer(20) == {"ok": [5.0] * 4}
        assert why(cluster) == []


def test_past_the_limit_the_gang_fails_by_name_and_the_trace_shows_the_wait(
    new_cluster: NewCluster, tmp_path: pathlib.Path, program: Callable[..., None]
) -> None:
    limits = ("--late-after", "1", "--collective-limit", "3")
    cluster = new_cluster(1, 2, 2, *limits).start()
    with Console(cluster, door="pjrt") as client:
        program(client, "p.pausing_step(p.x)")
        place = at(tmp_path, 'return x + jax.lax.psum(x, "d")')
        client.do("p.wanted_s = 30.0")
        began = time.monotonic()
        answer = client.ask("jax.block_until_ready(p.pausing_step(p.x))")
        took = elapsed(began)
        error = str(answer)
        assert "DEADLINE_EXCEEDED" in error and place in error, error
        assert "device 3 of island0/worker1, which waits for client" in error, error
        assert 3 <= took < 10 * PATIENCE, took  # not the callback's 30 s
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
