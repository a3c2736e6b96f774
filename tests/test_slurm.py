"""Jobs of deploy/slurm/gangway.sbatch under a real Slurm of three nodes, each with its own network, processes and
memory. After each job, however it ended, none of its processes and files is left on a node.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import pty
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator

import pytest
from harness import GANGWAY, PATIENCE, ROOT, wait_for
from slurm import Slurm

pytestmark = [
    pytest.mark.timeout(400),
    pytest.mark.skipif(os.geteuid() != 0, reason="namespaces and slurmd need root"),
]

BATCH = ROOT / "deploy" / "slurm" / "gangway.sbatch"
SUM = """
import os, sys, jax, numpy as np
from jax.sharding import Mesh, PartitionSpec as P
devices = jax.devices()
mesh = Mesh(np.asarray(devices), ("x",))
total = jax.jit(jax.shard_map(lambda x: jax.lax.psum(x, "x"), mesh=mesh, in_specs=P("x"), out_specs=P()))
print(len(devices), float(total(np.arange(len(devices), dtype=np.float32))[0]), sys.argv[1:], os.uname().nodename)
sys.exit(7)
"""


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    setup = [str(ROOT / "tools" / "setup.sh"), "--packages", "slurm"]
    installed = subprocess.run(setup, capture_output=True, text=True, timeout=900)
    assert installed.returncode == 0, installed.stdout + installed.stderr
    made = Slurm(tmp_path_factory.mktemp("slurm"), GANGWAY)
    try:
        yield made.start()
    finally:
        made.stop()


@pytest.fixture(autouse=True)
def nothing_left(slurm: Slurm) -> Iterator[None]:
    yield
    if slurm.jobs():  # of a failed test
        slurm.do("scancel", "--user=root")
    wait_for("no job left", lambda: not slurm.jobs(), 30)
    slurm.wait_for_nothing_left(10)
    names: list[str] = []
    for folder in slurm.home.glob("gangway-*"):
        names += [f"{folder.name}/{path.name}" for path in folder.iterdir()]
        shutil.rmtree(folder)  # the next test has its own
    assert not [name for name in names if not name.endswith((".log", ".log.1"))], names


def test_a_script_runs_over_three_nodes_and_the_job_has_its_exit_status(slurm: Slurm) -> None:
    job = slurm.submit(BATCH, script(slurm, SUM), "--an", "argument", GANGWAY_DEVICES="2")
    assert job.wait(90) == 7, job.logs()
    assert "6 15.0 ['--an', 'argument'] node1" in job.output, job.logs()
    for name in ("controller", "worker-0", "worker-1", "worker-2", "head", "compiler"):
        assert (job.folder / f"{name}.log").read_text(), job.logs()


def script(slurm: Slurm, text: str) -> pathlib.Path:
    path = slurm.home / f"script-{abs(hash(text))}.py"
    path.write_text(text)
    return path


@pytest.mark.nightly
@pytest.mark.timeout(700)
def test_the_training_example_learns_over_three_nodes(slurm: Slurm) -> None:
    flags = ("--steps", "10", "--batch", "6", "--sample", "0")
    job = slurm.submit(BATCH, ROOT / "examples" / "train_lm.py", *flags)
    assert job.wait(600) == 0, job.logs()
    found = re.search(r"10 steps in .* loss (\S+) -> (\S+)", job.output)
    assert found and float(found[2]) < float(found[1]), job.logs()
    assert "3 devices" in job.output, job.logs()


WAITING = """
import signal, sys, threading, jax, numpy as np
stop = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stop.set())
total = jax.jit(lambda x: x.sum())(jax.device_put(np.ones(4), jax.devices()[-1]))
print("waiting", flush=True)
stop.wait(300)
print("saved", float(total + 1), flush=True)
sys.exit(5)
"""
STUBBORN = WAITING.replace("lambda *_: stop.set()", "signal.SIG_IGN")


@pytest.mark.nightly
def test_a_cancelled_job_leaves_nothing(slurm: Slurm) -> None:
    for flags in ((), ("--full", "--signal=KILL")):
        job = slurm.submit(BATCH, script(slurm, WAITING))
        job.wait_for_words("waiting")
        assert [len(slurm.workers(node)) for node in slurm.nodes] == [1, 1, 1]
        job.cancel(*flags)
        job.wait(40)
        slurm.wait_for_nothing_left(20)


@pytest.mark.nightly
def test_processes_end_with_a_killed_batch_script(slurm: Slurm) -> None:
    job = slurm.submit(BATCH, script(slurm, WAITING))
    job.wait_for_words("waiting")
    slurm.nodes["node1"].do("pkill", "-KILL", "-f", "slurm_script")
    job.wait(40)
    slurm.wait_for_nothing_left(20)
    shutil.rmtree(job.folder)  # of which the guide says that it keeps the certificates in this case


@pytest.mark.nightly
def test_before_the_time_limit_the_script_can_save_its_state(slurm: Slurm) -> None:
    job = slurm.submit("--time=2", BATCH, script(slurm, WAITING))
    assert job.wait(130) == 5, job.logs()
    assert "saved 5.0" in job.output, job.logs()
    assert job.fields()["JobState"] == "FAILED", "not TIMEOUT: it ended before"


@pytest.mark.nightly
def test_a_script_that_does_not_end_is_killed_before_the_time_limit(slurm: Slurm) -> None:
    job = slurm.submit(BATCH, script(slurm, STUBBORN), GANGWAY_STOP_LIMIT="3")
    job.wait_for_words("waiting")
    job.cancel("--batch", "--signal=TERM")  # as before the time limit
    assert job.wait(60) == 137, job.logs()


# It holds arrays until it is told, by a byte in the pipe that its argument names, that a worker is gone. Work for a
# worker that is down waits (--worker-wait). Other attempts are for what is sent to it before its loss is known.
LOST = """
import os, sys, jax, numpy as np
kept, lost = 0, 1
devices = jax.devices()
add = jax.jit(lambda x: x + 1)
told = os.open(sys.argv[1], os.O_RDWR)
def attempt(work):
    try:
        return float(np.asarray(work())[0])
    except jax.errors.JaxRuntimeError as error:
        return str(error)
def again():
    return add(jax.device_put(np.full(4, 41.0), devices[lost]))
for turn in ("first", "second"):
    arrays = [jax.block_until_ready(jax.device_put(np.full(4, float(i)), devices[i])) for i in range(2)]
    print(turn, "holding", flush=True)
    os.read(told, 1)
    print(turn, "error:", attempt(lambda: add(arrays[lost])), flush=True)
    print(turn, "kept:", attempt(lambda: add(arrays[kept])), flush=True)
    back = next((value for value in (attempt(again) for _ in range(3)) if value == 42.0), None)
    print(turn, "back:", back, flush=True)
"""


@pytest.mark.nightly
def test_a_lost_worker_and_a_lost_node_cost_their_arrays_and_are_replaced(slurm: Slurm) -> None:
    """The process on its node; the node by a spare one."""
    os.mkfifo(pipe := slurm.home / "told")
    waits = {"GANGWAY_WORKERS": "2", "GANGWAY_OPTIONS": "--worker-wait 100"}
    job = slurm.submit(BATCH, script(slurm, LOST), pipe, **waits)
    job.wait_for_words("first holding")
    (process,) = slurm.workers("node2")
    os.kill(process, signal.SIGKILL)
    tell(pipe)
    job.wait_for_words("second holding")
    node = job.node_of(1)
    assert node != "node1"
    slurm.kill_node(node)
    try:
        tell(pipe)
        assert job.wait(120) == 0, job.logs()
        for turn in ("first", "second"):
            assert re.search(f"{turn} error: DATA_LOSS.*island0/worker1", job.output), job.logs()
            assert f"{turn} kept: 1.0" in job.output, job.logs()
            assert f"{turn} back: 42.0" in job.output, job.logs()
        assert job.node_of(1) not in ("node1", node)
    finally:
        slurm.start_node(node)
        slurm.wait_for_nodes()


def tell(pipe: pathlib.Path) -> None:
    """Fails if no process reads the pipe."""
    writer = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    os.write(writer, b"1")
    os.close(writer)


@pytest.mark.nightly
def test_the_loss_of_the_first_node_ends_the_job_everywhere(slurm: Slurm) -> None:
    """Which Slurm does not do with --no-kill: the workers do, when they have not reached the controller for long."""
    job = slurm.submit(BATCH, script(slurm, WAITING), GANGWAY_START_LIMIT="20")
    job.wait_for_words("waiting")
    slurm.kill_node("node1")
    try:
        job.wait(150)
        slurm.wait_for_nothing_left(20)
    finally:
        slurm.start_node("node1")
        slurm.wait_for_nodes()
    shutil.rmtree(job.folder)


@pytest.mark.nightly
def test_a_job_can_be_requeued_when_a_node_is_lost(slurm: Slurm) -> None:
    again = "import os\nif os.environ.get('SLURM_RESTART_COUNT'):\n    print('again')\n    os._exit(3)\n"
    job = slurm.submit("--no-kill=off", "--requeue", BATCH, script(slurm, again + WAITING))
    job.wait_for_words("waiting")
    slurm.kill_node("node2")
    try:
        wait_for("requeued", lambda: job.fields()["JobState"] == "PENDING", 60)
    finally:
        slurm.start_node("node2")
    slurm.wait_for_nodes()
    slurm.do("scontrol", "update", f"JobId={job.number}", "StartTime=now")
    assert job.wait(90) == 3, job.logs()
    assert "again" in job.output, job.logs()


@pytest.mark.nightly
def test_two_jobs_of_one_name_share_the_nodes(slurm: Slurm) -> None:
    flags = ("--job-name=same", "--mem=2000")
    jobs = [slurm.submit(*flags, BATCH, script(slurm, SUM), str(i)) for i in range(2)]
    wait_for("both run", lambda: {job.fields()["JobState"] for job in jobs} == {"RUNNING"}, 20)
    for number, job in enumerate(jobs):
        assert job.wait(120) == 7, job.logs()
        assert f"3 3.0 ['{number}'] node1" in job.output, job.logs()


ISLANDS = """
import jax, numpy as np
devices = jax.devices()
for island in range(2):
    mine = [d for d in devices if d.slice_index == island]
    mesh = jax.sharding.Mesh(np.asarray(mine), ("x",))
    rows = jax.device_put(np.arange(4.0), jax.NamedSharding(mesh, jax.P("x")))
    print("island", island, len(mine), float(jax.jit(lambda x: x.sum())(rows)))
"""


@pytest.mark.nightly
def test_workers_may_share_a_node(slurm: Slurm) -> None:
    """Each island is one node, and each worker has one of the node's two GPUs, as Slurm says it."""
    flags = ("--nodes=2", "--ntasks-per-node=2", "--cpus-per-task=2", "--gres=gpu:2")
    job = slurm.submit(*flags, BATCH, script(slurm, ISLANDS + WAITING), GANGWAY_ISLANDS="2")
    job.wait_for_words("waiting")
    assert "island 0 2 6.0\nisland 1 2 6.0\n" in job.output, job.logs()
    assert [job.node_of(worker) for worker in range(4)] == ["node1", "node1", "node2", "node2"]
    for node in ("node1", "node2"):
        gpus = [slurm.environment_of(pid)["CUDA_VISIBLE_DEVICES"] for pid in slurm.workers(node)]
        assert sorted(gpus) == ["0", "1"], gpus
    job.cancel("--batch", "--signal=TERM")
    assert job.wait(60) == 5, job.logs()


@contextlib.contextmanager
def replaced(slurm: Slurm, node: str, text: str) -> Iterator[None]:
    """On this node, `gangway` is a script, or is missing if the text is empty."""
    folder = slurm.folder / "replaced"
    folder.mkdir()
    if text:
        (folder / "gangway").write_text(f"#!/bin/sh\n{text}\n")
        (folder / "gangway").chmod(0o755)
    slurm.nodes[node].do("mount", "--bind", folder, slurm.bin)
    try:
        yield
    finally:
        slurm.nodes[node].do("umount", slurm.bin)
        shutil.rmtree(folder)


@pytest.mark.nightly
def test_a_node_that_lacks_something_fails_the_start_and_is_named(slurm: Slurm) -> None:
    path = script(slurm, SUM)
    for text, words in (
        ("", "gangway: node2: no command gangway in PATH"),
        ("echo 0.0.1", "/gangway is version 0.0.1, but the first node has"),
    ):
        with replaced(slurm, "node2", text):
            job = slurm.submit(BATCH, path)
            assert job.wait(60) == 2, job.logs()
            assert words in job.output and "install " in job.output, job.logs()
    hangs = f'[ "$1" = worker ] || exec {GANGWAY.resolve()} "$@"\nexec sleep 100'
    with replaced(slurm, "node2", hangs):
        job = slurm.submit(BATCH, path, GANGWAY_START_LIMIT="10")
        assert job.wait(60) == 2, job.logs()
        assert re.search(r"island0/worker\d", job.output) and "10 s" in job.output, job.logs()
    shared = slurm.nodes["node2"]
    shared.do("mount", "-o", "remount,ro", "/dev/shm")
    try:
        job = slurm.submit(BATCH, path)
        assert job.wait(60) == 2, job.logs()
        assert "node2: cannot make a folder for the certificate" in job.output, job.logs()
    finally:
        shared.do("mount", "-o", "remount,rw", "/dev/shm")


def test_a_wrong_request_is_refused_at_once(slurm: Slurm) -> None:
    path = script(slurm, SUM)
    for environment, words in (
        ({"GANGWAY_WORKERS": "4"}, "GANGWAY_WORKERS is 4, but the job has 3 tasks"),
        ({"GANGWAY_WORKERS": "many"}, "GANGWAY_WORKERS is 'many'"),
        ({"GANGWAY_ISLANDS": "2"}, "3 workers cannot be divided over 2 islands"),
        ({"GANGWAY_OPTIONS": "--no-such-option"}, "--no-such-option"),
        ({"GANGWAY_PLUGIN": "/no/such.so"}, "/no/such.so"),
    ):
        job = slurm.submit(BATCH, path, **environment)
        assert job.wait(30) == 2, job.logs()
        assert words in job.output, job.logs()
    outside = slurm.run(BATCH, path)
    assert outside.returncode == 2 and "no Slurm job" in outside.stderr, outside.stderr


@pytest.mark.nightly
def test_an_interactive_shell_is_on_the_first_node_and_ends_the_cluster(slurm: Slurm) -> None:
    parent, child = pty.openpty()
    # Job control needs a session and a terminal of its own.
    salloc = ["setsid", "--ctty", "--wait", "salloc", "--nodes=3", "--no-kill", str(BATCH)]
    process = subprocess.Popen(
        slurm.login.command(*salloc, cwd=slurm.home),
        env={**slurm.environment, "SHELL": "/bin/bash"},
        stdin=child,
        stdout=child,
        stderr=child,
    )
    os.close(child)
    said = b""

    def until(words: str) -> None:
        nonlocal said
        while words not in said.decode(errors="replace"):
            try:
                said += os.read(parent, 4096)
            except OSError:
                raise AssertionError(f"no {words!r} in {said.decode()}") from None

    try:
        until("3 workers with 1 devices each are up")
        os.write(parent, f"gangway run {script(slurm, SUM)} interactive\n".encode())
        until("3 3.0 ['interactive'] node1")
        os.write(
            parent,
            b"gangway status --json | tr -d ' \\n' | grep -o '\"name\":\"island0/worker2\"'\n",
        )
        until('"name":"island0/worker2"\r\n')
        os.write(parent, b"exit 4\n")
        assert process.wait(60 * PATIENCE) == 4
    finally:
        process.kill()
        os.close(parent)
