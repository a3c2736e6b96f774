"""Exhausted resources: a worker without free file descriptors (a head: test_silence), and a client that does not
read. Other clients continue, and waiting work continues once resources are free again.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pathlib
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest
from faultlib import Console, elapsed
from harness import (
    GANGWAY,
    NIGHTLY,
    PATIENCE,
    PYTHON,
    Cluster,
    client_environment,
    lasting_descriptors,
    wait_for,
    warm_up,
)

pytestmark = [pytest.mark.faults, pytest.mark.timeout(150)]
NewCluster = Callable[..., Cluster]
MIB = 1 << 20


def head_pid(cluster: Cluster) -> int:
    return int((pathlib.Path(cluster.state_dir) / str(cluster.port) / "head.pid").read_text())


def resident_bytes(pid: int) -> int:
    return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


@contextlib.contextmanager
def no_descriptors_left(pid: int) -> Iterator[None]:
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    used = lasting_descriptors(pid)
    # The limit is on numbers, and those in use may have gaps.
    lowest_free = next(number for number in itertools.count() if number not in used)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (lowest_free, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


def start_client(cluster: Cluster) -> subprocess.Popen[str]:
    code = (
        "import gangway; gangway.connect(); import jax, numpy as np\n"
        "print(float(jax.device_put(np.ones(4, 'float32')).sum()))"
    )
    return subprocess.Popen(
        [PYTHON, "-c", code],
        env=client_environment(cluster.port),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_more_workers_than_descriptors_are_refused_with_the_numbers(tmp_path: pathlib.Path) -> None:
    result = subprocess.run(
        ["sh", "-c", 'ulimit -n 140 && exec "$0" up --workers 8', GANGWAY],
        env={**os.environ, "GANGWAY_STATE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=30 * PATIENCE,
    )
    assert result.returncode == 1
    assert "may open 140 files, and 8 workers need 144" in result.stderr


def test_a_worker_without_descriptors_goes_on_when_there_are_some(new_cluster: NewCluster) -> None:
    cluster = new_cluster(1, 1, 2).start()
    with cluster.left_as_found(), Console(cluster) as client:
        client.do("f = jax.jit(lambda x: x + 1); x = jax.device_put(np.ones(4, 'float32'))")
        client.do("f(x).block_until_ready()")
        worker = cluster.workers()[0]
        soft, hard = resource.prlimit(worker["pid"], resource.RLIMIT_NOFILE)
        assert soft == min(hard, 1 << 20)  # it is raised
        with no_descriptors_left(worker["pid"]):
            assert client.do("result = float(np.asarray(f(x)).sum())") == 8
            other = start_client(cluster)  # its session needs a data stream of its own
            cluster.wait_for_words("cannot accept connections: Too many open files", 15)
            assert client.do("result = float(np.asarray(f(x)).sum())") == 8
        output, errors = other.communicate(timeout=40 * PATIENCE)
        assert output.strip() == "4.0", errors
        assert cluster.workers()[0]["incarnation"] == worker["incarnation"]


def download_many(cluster: Cluster, count: int) -> None:
    warm_up(cluster)
    with Console(cluster) as client:
        client.do("from concurrent.futures import ThreadPoolExecutor")
        client.do(f"xs = [jnp.full(1 << 22, i, 'float32') for i in range({count})]", 40)
        client.do(f"list(ThreadPoolExecutor({count}).map(np.asarray, xs))", 60)
    wait_for("the client gone", lambda: not cluster.status()["sessions"], 10)


def test_a_client_that_does_not_read_holds_up_nobody_and_only_what_it_asked_for(
    new_cluster: NewCluster,
) -> None:
    """A client requests 24 downloads of 16 MiB and does not read them. The front door holds
    what was requested and no more, another client is served, and then every download arrives.
    """
    count, size = 24, 16 * MIB
    cluster = new_cluster(1, 1, 2).start()
    head = head_pid(cluster)
    # The warm-up downloads as many at once: gRPC's pools grow with concurrency and keep their threads.
    with (
        cluster.left_as_found(lambda: download_many(cluster, count)),
        Console(cluster) as slow,
        Console(cluster) as other,
    ):
        slow.do("from concurrent.futures import ThreadPoolExecutor")
        slow.do(f"make = jax.jit(lambda i: jnp.full({size // 4}, i, 'float32'))")
        slow.do(f"pool = ThreadPoolExecutor({count})")
        other.do("f = jax.jit(lambda x: x + 1); x = jax.device_put(np.ones(4, 'float32'))")
        other.do("f(x).block_until_ready()")
        before = resident_bytes(head)
        for _ in range(3 if NIGHTLY else 1):
            slow.do(f"xs = [make(float(i)) for i in range({count})]; jax.block_until_ready(xs)")
            slow.do("futures = [pool.submit(np.asarray, x) for x in xs]")
            os.kill(slow.pid, signal.SIGSTOP)
            try:
                most = 0
                until = time.monotonic() + 1.5
                while time.monotonic() < until:
                    began = time.monotonic()
                    assert other.do("result = float(np.asarray(f(x)).sum())") == 8
                    # Two cores are shared with 384 MiB in flight.
                    assert elapsed(began) < 10 * PATIENCE
                    most = max(most, resident_bytes(head) - before)
            finally:
                os.kill(slow.pid, signal.SIGCONT)
            sums = slow.do("result = [float(f.result()[-1]) for f in futures]", 60)
            assert sums == [float(i) for i in range(count)]
            print(f"{most / MIB:.0f} MiB held, {(resident_bytes(head) - before) / MIB:.0f} after")
            assert most < count * size * 1.25 + 64 * MIB, f"{most / MIB:.0f} MiB"
            slow.do("del futures, xs")


def test_an_idle_worker_gives_the_memory_of_its_programs_back(new_cluster: NewCluster) -> None:
    """While programs run it keeps their memory, so that a program which runs again touches no fresh pages."""
    cluster = new_cluster(1, 1, 1).start()
    pid = cluster.workers()[0]["pid"]
    with Console(cluster) as client:
        client.do("f = jax.jit(lambda v: (jnp.sin(v)[::-1] * v).sum())")
        client.do("f(jnp.ones(4, 'float32')).block_until_ready()")
        before = resident_bytes(pid)
        client.do("v = jnp.arange(16 << 20, dtype='float32'); f(v).block_until_ready(); v.delete()")
        assert resident_bytes(pid) > before + 60 * MIB, "the 64 MiB of an array are kept"
        wait_for("the memory given back", lambda: resident_bytes(pid) < before + 30 * MIB, 40)
