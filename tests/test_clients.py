"""Client processes: unmodified scripts, several at once, and what they leave behind."""

from __future__ import annotations

import pathlib
import subprocess
import sys
from collections.abc import Callable

import pytest
from case_runs import DEVICES, outcomes, reference_outcomes, start_cases
from compare import assert_bitwise_equal
from harness import NEW_PYTHON, PATIENCE, Cluster, client_environment, run_client, wait_for

SHARED = [
    "arrays.case_put_sharded",
    "compute.case_training",
    "sharded.case_chained_collectives",
    "sharded.case_mesh_with_constraints",
    "sharded.case_psum",
]


NewCluster = Callable[..., Cluster]


@pytest.mark.timeout(150)
def test_two_client_processes_at_once(cluster: Cluster, tmp_path: pathlib.Path) -> None:
    outs = [tmp_path / "first.pickle", tmp_path / "second.pickle"]
    processes = [start_cases("gangway", SHARED, out, cluster.port) for out in outs]
    texts = [process.communicate(timeout=90 * PATIENCE)[0] for process in processes]
    expected = reference_outcomes(SHARED, tmp_path, DEVICES)
    for out, process, text in zip(outs, processes, texts, strict=True):
        found = outcomes(out, text, process.returncode)
        assert list(found) == SHARED, text
        for name in SHARED:
            assert not found[name].error, found[name].error
            assert_bitwise_equal(found[name].value, expected[name].value)


def test_run_gives_an_unmodified_script_the_cluster(
    cluster: Cluster, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "neighbour.py").write_text("NAME = 'a module beside the script'\n")
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, jax, neighbour\n"
        "assert __name__ == '__main__'\n"
        "print(sys.argv[1:], len(jax.devices()), jax.numpy.arange(4).sum(), neighbour.NAME)\n"
        "sys.exit(3)\n"
    )
    result = cluster.command(
        "run",
        "--port",
        str(cluster.port),
        str(script),
        "--flag",
        "a b",
        cwd=tmp_path,
        env=NEW_PYTHON,
    )
    assert result.returncode == 3, result.stdout + result.stderr
    assert result.stdout.strip() == "['--flag', 'a b'] 8 6 a module beside the script"


def test_run_passes_an_exception_on(cluster: Cluster, tmp_path: pathlib.Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("raise KeyError('mine')\n")
    result = cluster.command("run", "--port", str(cluster.port), str(script), env=NEW_PYTHON)
    assert result.returncode == 1
    assert "KeyError: 'mine'" in result.stderr and "script.py" in result.stderr


def test_child_processes_of_a_script_reach_the_cluster(
    cluster: Cluster, tmp_path: pathlib.Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import subprocess, sys\n"
        "code = 'import jax; print(len(jax.devices()), jax.devices()[0].client.runtime_type)'\n"
        "sys.exit(subprocess.run([sys.executable, '-c', code]).returncode)\n"
    )
    result = cluster.command("run", "--port", str(cluster.port), str(script))
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("8 proxy/"), result.stdout


def test_a_state_folder_with_a_name_too_long_for_a_socket(new_cluster: NewCluster) -> None:
    """Processes then use gRPC on loopback; everything else works as usual."""
    cluster = new_cluster(2, 1, 2, "--separate-schedulers", folder="gangway-" + 100 * "x").start()
    assert cluster.control.startswith("127.0.0.1:"), cluster.control
    code = (
        f"import gangway; gangway.connect(port={cluster.port})\n"
        "import jax, numpy as np\n"
        "x = np.arange(1 << 20, dtype=np.float32)\n"
        "for d in jax.devices() * 2: x = jax.jit(lambda x: x + 1)(jax.device_put(x, d))\n"
        "print(float(x[0]), float(x[-1]))\n"
    )
    result = run_client(code, cluster.port)
    assert result.stdout.split() == ["8.0", f"{(1 << 20) + 7}.0"], result.stderr


def test_connect_from_a_notebook(cluster: Cluster) -> None:
    code = (
        "import jax, gangway\n"
        f"devices = gangway.connect(port={cluster.port})\n"
        f"assert devices == jax.devices() == gangway.connect(port={cluster.port})\n"
        "print(len(devices), jax.numpy.ones(3).sum(), len(jax.devices('cpu')) > 0)\n"
    )
    result = run_client(code, cluster.port)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "8 3.0 True"


# For scripts: how often each thread of this process gave up a core until now, by id.
SWITCHES = """
import pathlib

def switches(named=None):
    counts = {}
    for task in pathlib.Path("/proc/self/task").iterdir():
        try:
            if named not in (None, (task / "comm").read_text().strip()):
                continue
            lines = [line.split() for line in (task / "status").read_text().splitlines()]
        except OSError:  # it has ended
            continue
        counts[task.name] = sum(int(words[1]) for words in lines if "ctxt_switches" in words[0])
    return counts

def switches_since(before, named=None):
    return sum(count - before.get(thread, 0) for thread, count in switches(named).items())
"""


def test_an_idle_client_wakes_seldom(cluster: Cluster) -> None:
    """jaxlib's client alone wakes 7,700 times a second (gangway/_client_threads.py)."""
    code = (
        SWITCHES
        + """
import time
import gangway
gangway.connect()
import jax.numpy as jnp
assert float(jnp.arange(4.0).sum()) == 6
before, started = switches(), time.monotonic()
time.sleep(1)
print(switches_since(before) / (time.monotonic() - started))
"""
    )
    done = run_client(code, cluster.port)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 1500, "wake-ups a second"


@pytest.mark.alone
@pytest.mark.parametrize("users_own", ["", "-event_engine_dns"])
def test_an_awaited_call_wakes_no_pool_of_grpc(cluster: Cluster, users_own: str) -> None:
    """Its threads wake 22 times in each call, unless the package says otherwise
    (gangway/_client_threads.py). What the user has said stays as it is.
    """
    code = (
        SWITCHES
        + f"""
import os
os.environ.pop("GRPC_EXPERIMENTS", None)
if {users_own!r}:
    os.environ["GRPC_EXPERIMENTS"] = {users_own!r}
import gangway
gangway.connect()
assert os.environ.get("GRPC_EXPERIMENTS", "") == {users_own!r}
import jax
f = jax.jit(lambda x: x + 1)
x = f(1.0)
float(f(x))
before = switches("event_engine")
for _ in range(200):
    float(f(x))
print(switches_since(before, "event_engine") / 200)
"""
    )
    done = run_client(code, cluster.port)
    assert done.returncode == 0, done.stderr
    # 0.4 and 22 on an idle machine; timers wake the pool, too, so a slow one counts more.
    assert (float(done.stdout) > 10) == bool(users_own), "wake-ups a call"


@pytest.mark.parametrize("sees_the_state_folder", [True, False])
def test_a_client_connects_by_the_socket_of_the_state_folder(
    cluster: Cluster, tmp_path: pathlib.Path, sees_the_state_folder: bool
) -> None:
    """Without the folder it connects over loopback."""
    hidden = {"GANGWAY_STATE_DIR": str(tmp_path), "GANGWAY_TOKEN": cluster.token}
    code = f"""
import os, socket
os.environ.update({{}} if {sees_the_state_folder} else {hidden})
import gangway
gangway.connect()
import jax.numpy as jnp
assert float(jnp.arange(4.0).sum()) == 6

def peer(descriptor):
    try:
        connection = socket.socket(fileno=descriptor)
    except OSError:
        return None
    try:
        return connection.getpeername()
    except OSError:
        return None
    finally:
        connection.detach()

print([peer(int(name)) for name in os.listdir("/proc/self/fd")])
"""
    done = run_client(code, cluster.port)
    assert done.returncode == 0, done.stderr
    assert ("front_door.sock" in done.stdout) == sees_the_state_folder, done.stdout
    assert (f", {cluster.port}" in done.stdout) != sees_the_state_folder, done.stdout


def test_pathwaysutils_works_unchanged(cluster: Cluster) -> None:
    pytest.importorskip("pathwaysutils")
    code = (
        "import pathwaysutils; pathwaysutils.initialize()\n"
        "import jax; print(len(jax.devices()), jax.numpy.arange(5).sum())\n"
    )
    variables = {
        **client_environment(cluster.port),
        "JAX_PLATFORMS": "proxy",
        "JAX_BACKEND_TARGET": f"grpc://127.0.0.1:{cluster.port}",
        "IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS": "true",
    }
    result = subprocess.run(
        [sys.executable, "-c", code],
        env=variables,
        capture_output=True,
        text=True,
        timeout=50 * PATIENCE,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "8 10"


def test_a_function_is_compiled_once_for_all_clients(new_cluster: NewCluster) -> None:
    cluster = new_cluster(1, 1, 1)
    cluster.compiles_for_itself()
    cluster.start()
    code = (
        f"import gangway; gangway.connect(port={cluster.port})\n"
        "import jax, numpy as np\n"
        "def make():\n"
        "    def only_here(x): return jax.numpy.tanh(x @ x.T).sum() * 7\n"
        "    return jax.jit(only_here)\n"
        "for _ in range(4): print(float(make()(np.eye(5, dtype='float32'))))\n"
    )

    def compiled() -> int:
        return len(list(pathlib.Path(cluster.state_dir, "cache").glob("*.executable")))

    before = compiled()
    for _ in range(2):
        result = run_client(code, cluster.port)
        assert len(set(result.stdout.split())) == 1, result.stdout + result.stderr
    assert compiled() == before + 1


def test_a_ready_array_does_not_share_the_memory_of_the_host(cluster: Cluster) -> None:
    code = (  # not a compared case: in-process CPU backends may share it
        f"import gangway; gangway.connect(port={cluster.port})\n"
        "import jax, numpy as np\n"
        "for size in (1, 1 << 10, 1 << 22):\n"
        "    host = np.ones(size, np.float32)\n"
        "    x = jax.device_put(host).block_until_ready()\n"
        "    host[:] = 7\n"
        "    print(float(jax.numpy.max(x)))\n"
    )
    result = run_client(code, cluster.port)
    assert result.stdout.split() == ["1.0"] * 3, result.stdout + result.stderr


def test_ended_clients_leave_nothing_behind_OB_2(cluster: Cluster) -> None:
    code = (
        f"import gangway; gangway.connect(port={cluster.port})\n"
        "import jax, numpy as np\n"
        "xs = [jax.device_put(np.ones(1 << 18, np.float32), d) for d in jax.devices()]\n"
        "jax.block_until_ready(xs); print('held')\n"
    )
    result = run_client(code, cluster.port)
    assert "held" in result.stdout, result.stderr

    def empty() -> bool:
        left = cluster.census()
        return not any(left[what] for what in ("sessions", "arrays", "bytes", "bytes on devices"))

    wait_for("no session, array or byte left", empty, 5)
