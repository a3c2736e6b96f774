"""The process that a PJRT session lives in: it forks, is interrupted, ends with work pending, and has many threads."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys

import pytest
from harness import (
    GANGWAY,
    NIGHTLY,
    PATIENCE,
    PYTHON,
    ROOT,
    Cluster,
    client_environment,
    free_port,
    wait_for,
)
from native_programs import native

START = """
import gangway
gangway.connect(door="pjrt")
import os, signal, sys, threading, time, warnings
warnings.simplefilter("ignore")  # of a fork beside threads
import jax, jax.numpy as jnp, numpy as np
f = jax.jit(lambda x: x * 3)
x = jax.device_put(np.ones(8, "float32"))
f(x).block_until_ready()
"""


def run(
    cluster: Cluster, script: str, limit_s: float = 60, python: str = PYTHON
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, "-c", START + script],
        env=client_environment(cluster.port, "pjrt"),
        capture_output=True,
        text=True,
        timeout=limit_s * PATIENCE,
    )


FORK = """
def child_of_this():
    said, say = os.pipe()
    with gate:
        child = os.fork()
    if child == 0:
        os.close(said)
        try:
            f(x).block_until_ready()
            answer = "worked"
        except Exception as error:
            answer = str(error)
        x.delete()  # destructors must not wait for a lock either
        f.clear_cache()
        os.write(say, answer.encode())
        os._exit(0)
    os.close(say)
    return os.read(said, 4096).decode(), os.waitpid(child, 0)[1]

busy = True
gate = threading.Lock()
def work():
    while busy:
        with gate:
            f(x)
threads = [threading.Thread(target=work) for _ in range(2)]
for thread in threads:
    thread.start()
try:
    answers = [child_of_this() for _ in range(5)]
finally:
    busy = False
for thread in threads:
    thread.join()
print(answers)
print("answers", set(("was forked" in text, status) for text, status in answers))
print("sum", float(f(x).sum()))
"""


def test_a_forked_child_gets_an_error_and_disturbs_nobody(cluster: Cluster) -> None:
    """No thread is in a call at the fork: a child would wait for ever for the locks of jaxlib that the thread held
    (its MemoryKind has one for the process). The plugin's own threads are busy.
    """
    with cluster.left_as_found(lambda: None):
        result = run(cluster, FORK)
    assert "answers {(True, 0)}" in result.stdout, result.stdout + result.stderr
    assert "sum 24.0" in result.stdout, result.stdout + result.stderr


CONNECT_IN_CHILD = """
def answer():
    jax.clear_caches()
    from jax._src import xla_bridge
    xla_bridge._clear_backends()
    return float(jax.jit(lambda y: y + 1)(jnp.float32(4)))

child = os.fork()
if child == 0:
    os._exit(0 if answer() == 5 else 1)
status = os.waitpid(child, 0)[1]
print("child", status, "sum", float(f(x).sum()))
"""


def test_a_forked_child_may_connect_anew(cluster: Cluster) -> None:
    result = run(cluster, CONNECT_IN_CHILD)
    assert "child 0 sum 24.0" in result.stdout, result.stdout + result.stderr


def test_a_script_may_end_with_work_pending(cluster: Cluster) -> None:
    def end(*lasts: str) -> None:
        for last in lasts:
            script = "for _ in range(3000): x = f(x) * 0 + 1\nkeep = [f(x) for _ in range(9)]\n"
            result = run(cluster, script + last, python=sys.executable)
            assert result.returncode == 0, result.stderr
            assert result.stderr == ""

    with cluster.left_as_found(lambda: end("")):
        end("", "sys.exit(0)", *["raise SystemExit(0)"] * NIGHTLY)


THREADS = """
def work(seed, sums):
    y = jax.device_put(np.full(16, seed, "float32"), jax.devices()[seed % 8])
    for _ in range(100):
        y = y + 1
    sums[seed] = float(np.asarray(y)[3])

sums = {}
threads = [threading.Thread(target=work, args=(seed, sums)) for seed in range(24)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("right", sum(sums[seed] == seed + 100 for seed in range(24)))
"""


def test_many_threads_share_a_session(cluster: Cluster) -> None:
    result = run(cluster, THREADS)
    assert "right 24" in result.stdout, result.stdout + result.stderr


INTERRUPT = """
@jax.jit
def long(x):
    return jax.lax.fori_loop(0, 400, lambda i, y: y @ y * 0 + y, x)

y = jax.device_put(np.ones((400, 400), "float32"))
long(y).block_until_ready()
signal.signal(signal.SIGINT, signal.default_int_handler)  # a run in the background ignores it
threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    while True:
        long(y).block_until_ready()
except KeyboardInterrupt:
    print("interrupted")
print("sum", float(f(x).sum()))
"""


def test_ctrl_c_interrupts_the_script_and_the_session_lives(cluster: Cluster) -> None:
    result = run(cluster, INTERRUPT)
    assert "interrupted\nsum 24.0" in result.stdout, result.stdout + result.stderr


def resident_bytes(pid: int) -> int:
    return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def run_native(cluster: Cluster, suite: str, limit_s: float, **environment: str) -> None:
    library = os.environ.get("GANGWAY_PJRT_PLUGIN", str(ROOT / "bin" / "libgangway_pjrt.so"))
    ran = subprocess.run(
        [str(native("pjrt_plugin_e2e_test")), f"--gtest_filter={suite}.*"],
        env={
            **client_environment(cluster.port, "pjrt"),
            "GANGWAY_TEST_PLUGIN": library,
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=limit_s,
    )
    assert ran.returncode == 0 and "[  PASSED  ] 1 test" in ran.stdout, ran.stdout + ran.stderr


def test_a_forked_child_of_busy_threads_gets_errors_and_never_waits(cluster: Cluster) -> None:
    """From C, whose threads hold no lock but the plugin's."""
    with cluster.left_as_found(lambda: None):
        run_native(cluster, "PjrtForkE2eTest", 60 * PATIENCE)


@pytest.mark.timeout(1800 if NIGHTLY else 150)
def test_many_calls_and_uploads_leave_nothing(cluster: Cluster) -> None:
    """From C: a hundredth of the nightly run, which makes ten million calls and a million uploads."""
    calls = "10000000" if NIGHTLY else "100000"

    def soak() -> None:
        limit_s = 1700 if NIGHTLY else 120 * PATIENCE
        run_native(cluster, "PjrtSoakE2eTest", limit_s, GANGWAY_SOAK_CALLS=calls)

    before = {}
    with cluster.left_as_found(lambda: None):
        before = {pid: resident_bytes(pid) for pid in cluster.processes()}
        soak()
    for pid, size in before.items():
        assert resident_bytes(pid) - size < 100 << 20, pid


def test_a_killed_script_leaves_nothing(cluster: Cluster, tmp_path: pathlib.Path) -> None:
    def kill() -> None:
        ready = tmp_path / "ready"
        ready.unlink(missing_ok=True)
        script = f"open({str(ready)!r}, 'w').close()\nwhile True: x = f(x) * 0 + 1"
        process = subprocess.Popen(
            [PYTHON, "-c", START + script], env=client_environment(cluster.port, "pjrt")
        )
        try:
            wait_for("the script runs", ready.exists, 60)
        finally:
            os.kill(process.pid, signal.SIGKILL)
            process.wait(30)

    with cluster.left_as_found(kill):
        kill()


DISTRIBUTED = """
import sys
import jax
jax.distributed.initialize(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
print(len(jax.devices()), jax.process_count(), float(jax.jit(lambda x: x + 1)(1.0)))
"""


def distributed(cluster: Cluster, folder: pathlib.Path, count: int) -> list[tuple[int, str]]:
    """Exit status and output of each process of jax.distributed."""
    script = folder / "distributed.py"
    script.write_text(DISTRIBUTED)
    run = [str(GANGWAY), "run", "--port", str(cluster.port), "--door", "pjrt", str(script)]
    address = f"127.0.0.1:{free_port()}"
    started = [
        subprocess.Popen(
            [*run, address, str(count), str(i)],
            env=client_environment(cluster.port, "pjrt"),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for i in range(count)
    ]
    try:
        said = [each.communicate(timeout=60 * PATIENCE)[0] for each in started]
    finally:
        for each in started:
            each.kill()
            each.wait()
    return [(each.returncode, text) for each, text in zip(started, said, strict=True)]


def test_one_process_of_jax_distributed_is_served(cluster: Cluster, tmp_path: pathlib.Path) -> None:
    """As frameworks start it. It is one process to the cluster."""
    [(status, said)] = distributed(cluster, tmp_path, 1)
    assert status == 0, said
    assert said.splitlines()[-1] == "8 1 2.0"


def test_more_processes_of_jax_distributed_are_told_to_be_one(
    cluster: Cluster, tmp_path: pathlib.Path
) -> None:
    for i, (status, said) in enumerate(distributed(cluster, tmp_path, 2)):
        assert status != 0
        assert f"this process is number {i} of 2 of jax.distributed" in said, said
        assert "without jax.distributed.initialize or with num_processes=1" in said
