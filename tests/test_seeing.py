"""What `gangway trace`, `why`, `doctor` and the metrics report about a cluster of real processes."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest
from faultlib import A_MINUTE, Console
from harness import PATIENCE, Cluster, free_port, wait_for

pytestmark = pytest.mark.faults
NewCluster = Callable[..., Cluster]
MIB = 1 << 20


def why(cluster: Cluster, *scope: str) -> dict[str, Any]:
    result = cluster.command("why", "--json", "--port", str(cluster.port), *scope, timeout_s=10)
    assert result.returncode == 0, result.stdout + result.stderr
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


def trace(cluster: Cluster, folder: pathlib.Path) -> tuple[list[dict[str, Any]], str]:
    out = folder / "trace.json"
    result = cluster.command("trace", "--out", str(out), "--port", str(cluster.port), timeout_s=20)
    assert result.returncode == 0, result.stdout + result.stderr
    events: list[dict[str, Any]] = json.loads(out.read_text())["traceEvents"]
    return events, result.stdout


def names(events: list[dict[str, Any]], kind: str) -> dict[tuple[int, int], str]:
    return {(e["pid"], e.get("tid", 0)): e["args"]["name"] for e in events if e["name"] == kind}


def test_a_trace_joins_a_gang_from_its_release_to_eight_devices_and_its_end(
    cluster: Cluster, tmp_path: pathlib.Path
) -> None:
    with Console(cluster) as client:
        client.do(
            "from jax.sharding import Mesh, NamedSharding, PartitionSpec as P; "
            "s = NamedSharding(Mesh(np.array(jax.devices()), ('d',)), P('d')); "
            "x = jax.device_put(np.ones(64, 'float32'), s)"
        )
        client.do("f = jax.jit(lambda x: x * 2 + 1); y = f(x); y.block_until_ready()")
        events, text = trace(cluster, tmp_path)
    assert "did not answer" not in text, text
    processes = set(names(events, "process_name").values())
    for process in ("controller (pid", "island0/worker0 (pid", "compiler (pid", "island 0"):
        assert any(name.startswith(process) for name in processes), processes
    threads = names(events, "thread_name")
    on_device: dict[int, set[str]] = {}
    for event in events:
        track = threads.get((event["pid"], event.get("tid", 0)), "")
        if event["ph"] == "X" and track.startswith("device "):
            on_device.setdefault(event["args"]["gang"], set()).add(track)
    wide = [gang for gang, devices in on_device.items() if len(devices) == 8]
    assert wide, on_device
    # One arrow from the release to each device, and one from each device to the end.
    for category in ("released", "executed"):
        ends: dict[str, set[int]] = {"s": set(), "f": set()}
        for event in events:
            if event.get("cat") == category and event["ph"] in ends:
                ends[event["ph"]].add(event["id"])
        arrows = ends["s"] & ends["f"]
        assert {wide[-1] * 65536 + device for device in range(8)} <= arrows
    for event in events:
        if event["ph"] == "X":
            assert event["dur"] > 0 and event["ts"] > 0, event
    for kind in ("requests of session", "submits", "lowering", "host-side work", "link "):
        assert any(name.startswith(kind) for name in threads.values()), threads


TRAINING = f"import jax\nimport numpy as np\n{A_MINUTE}"


def test_why_tells_a_busy_device_from_a_stopped_worker_and_names_the_source_line(
    new_cluster: NewCluster, tmp_path: pathlib.Path
) -> None:
    script = tmp_path / "training.py"
    script.write_text(TRAINING)
    cluster = new_cluster(1, 1, 1).start()
    with Console(cluster) as client:
        client.do(f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import training")
        client.do("x = jax.device_put(np.float32(1))")
        client.send("y = training.a_minute(x); z = y + 1; z.block_until_ready()")

        def busy() -> list[dict[str, Any]]:
            waits = why(cluster)["waits"]
            return [w for w in waits if w["reason"] == "executing" and w["waited_ms"] > 1000]

        waits = wait_for("the long gang named", busy, 20)
        assert waits[0]["workers"] == ["island0/worker0"] and waits[0]["devices"] == [0], waits
        assert "which sends heartbeats" in waits[0]["text"], waits
        line = 1 + TRAINING.splitlines().index("    return jax.lax.fori_loop(0, 6, ten_seconds, x)")
        assert waits[0]["program"] == "jit_a_minute", waits
        assert waits[0]["source"] == f"{script}:{line}", waits
        assert f"(jit_a_minute at {script}:{line})" in waits[0]["text"], waits
        chain = why(cluster, "gang", str(waits[-1]["gang"]))["waits"]
        assert chain[-1]["gang"] == waits[0]["gang"], chain
        os.kill(client.pid, signal.SIGKILL)  # its call still runs when the cluster ends


def test_why_names_who_holds_the_memory_that_a_gang_waits_for(new_cluster: NewCluster) -> None:
    cluster = new_cluster(1, 1, 1, "--memory", str(16 * MIB)).start()
    with Console(cluster) as holder, Console(cluster) as waiter:
        holder.do("x = jax.device_put(np.ones(3 << 20, 'float32')); x.block_until_ready()")
        session = cluster.status()["sessions"][0]["id"]
        waiter.send("y = jax.device_put(np.ones(2 << 20, 'float32')); y.block_until_ready()")

        def blocked() -> list[dict[str, Any]]:
            return [w for w in why(cluster)["waits"] if w["reason"] == "memory"]

        wait = wait_for("a wait for memory", blocked, 10)[0]
        assert wait["needed_bytes"] == 8 * MIB and wait["budget_bytes"] == 16 * MIB, wait
        assert {"session": session, "bytes": 12 * MIB} in wait["holders"], wait
        assert f"session {session}" in wait["text"]
        scoped = why(cluster, "session", str(wait["session"]))["waits"]
        assert [w["reason"] for w in scoped] == ["memory"], scoped
        holder.do("del x; result = 1")
        waiter.answer(20)


def test_doctor_finds_a_healthy_cluster_well_and_says_what_is_wrong(
    cluster: Cluster, tmp_path: pathlib.Path
) -> None:
    port = str(cluster.port)
    well = cluster.command("doctor", "--port", port, timeout_s=30)
    assert well.returncode == 0, well.stdout + well.stderr
    for what in ("plugin", "descriptors", "memory", "disk", "ports", "links", "versions", "clocks"):
        assert f"ok    {what} " in well.stdout, well.stdout
    cache = os.environ.get("GANGWAY_CACHE_DIR") or f"{cluster.state_dir}/cache"
    assert f" free for {cache}\n" in well.stdout, well.stdout
    assert "a round trip of two sleeping threads takes " in well.stdout, well.stdout
    fake = tmp_path / "plugin.so"
    fake.write_text("not a shared object")
    ill = cluster.command("doctor", "--port", port, "--plugin", str(fake), timeout_s=30)
    assert ill.returncode == 1, ill.stdout
    assert "WRONG plugin" in ill.stdout and str(fake) in ill.stdout, ill.stdout


def test_metrics_are_served_on_loopback(new_cluster: NewCluster) -> None:
    port = free_port()
    cluster = new_cluster(1, 1, 2, "--metrics-port", str(port)).start()
    with Console(cluster) as client:
        client.do("x = jax.device_put(np.ones(1 << 18, 'float32')); x.block_until_ready()")
        with urllib.request.urlopen(
            f"http://127.0.0.1:{port}/metrics", timeout=10 * PATIENCE
        ) as reply:
            lines = reply.read().decode().splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert float(values["gangway_sessions"]) == 1, lines
    assert float(values["gangway_array_bytes"]) == MIB, lines
    assert float(values['gangway_worker_up{worker="island0/worker0"}']) == 1, lines
    assert float(values['gangway_device_bytes{worker="island0/worker0",device="0"}']) >= MIB, lines
    assert float(values["gangway_frames_from_clients_total"]) > 0, lines


def test_tools_say_so_where_no_cluster_runs(
    new_cluster: NewCluster, tmp_path: pathlib.Path
) -> None:
    absent = new_cluster(1, 1, 1)
    for command in (["trace", "--out", str(tmp_path / "t.json")], ["why"], ["why", "gang", "x"]):
        result = absent.command(*command, "--port", str(absent.port), timeout_s=10)
        assert result.returncode == 1 and "gangway" in result.stderr, result
