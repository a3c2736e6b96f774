"""A supervisor that is stopped (SIGSTOP): the cluster works on, and `gangway down` still ends it."""

from __future__ import annotations

import pathlib
import time
from collections.abc import Callable

import pytest
from faultlib import Console, elapsed, stop_process
from harness import Cluster

pytestmark = [pytest.mark.faults, pytest.mark.timeout(120)]
NewCluster = Callable[..., Cluster]


def test_a_cluster_works_and_ends_while_its_supervisor_is_stopped(new_cluster: NewCluster) -> None:
    cluster = new_cluster(1, 1, 1).start()
    folder = pathlib.Path(cluster.state_dir) / str(cluster.port)
    supervisor = int((folder / "up.pid").read_text())
    stop_process(supervisor)
    began = time.monotonic()
    assert cluster.status()["compiler"]["state"] == "up"
    with Console(cluster) as client:
        assert client.do("result = float(jax.jit(lambda x: x * 6)(np.float32(7)))", 30) == 42
    ended = cluster.command("down", "--port", str(cluster.port))
    assert "has ended" in ended.stdout, ended
    assert elapsed(began) < 40
