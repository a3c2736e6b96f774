"""A test run that is killed leaves no cluster and no client behind."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys

import pytest
from harness import ROOT, wait_for
from leftovers import processes_with

# A stand-in for a test run: a cluster, its client, and a worker that SIGTERM alone does not end.
RUN = """
import os, signal, subprocess, sys
from harness import Cluster, client_environment
cluster = Cluster(1, 1, 1).start()
subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env=client_environment(cluster.port))
os.kill(cluster.workers()[0]["pid"], signal.SIGSTOP)
print(cluster.state_dir, flush=True)
signal.pause()
"""


@pytest.mark.faults
def test_a_killed_run_leaves_nothing() -> None:
    run = subprocess.Popen(
        [sys.executable, "-c", RUN],
        env={**os.environ, "PYTHONPATH": str(ROOT / "testing")},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert run.stdout
    state_dir = run.stdout.readline().strip()
    assert pathlib.Path(state_dir).is_dir()
    entry = f"GANGWAY_STATE_DIR={state_dir}"
    assert len(processes_with(entry)) >= 5  # supervisor, head, compiler, worker, client
    run.send_signal(signal.SIGKILL)
    run.wait(5)
    wait_for("every process of the run gone", lambda: not processes_with(entry), 40)
    wait_for("its folder gone", lambda: not pathlib.Path(state_dir).exists(), 10)
