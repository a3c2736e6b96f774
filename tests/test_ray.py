"""Clusters inside a Ray cluster (gangway.ray): a real Ray of several nodes on this machine, of which one is killed. After
each test, nothing of a cluster is left on a node. What needs no Ray is tested without it.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import types
from collections.abc import Iterator

import pytest
from harness import ROOT, wait_for
from leftovers import processes_with
from ray_nodes import RayNodes, ray_python

sys.path.append(str(ROOT / "python"))

import gangway.ray

from gangway import _ray_place, _ray_wanted

GUARD = (ROOT / "python" / "gangway" / "_guard.py").read_text()
GUIDE = ROOT / "docs" / "guides" / "ray.md"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"workers": 0}, "workers=0 is not a number of at least 1"),
        ({"workers": 2.5}, "workers=2.5"),
        ({"devices": True}, "devices=True"),
        ({"per_node": -1}, "per_node=-1"),
        ({"num_cpus": float("nan")}, "num_cpus=nan"),
        ({"num_gpus": 1.5}, "num_gpus=1.5: Ray gives out parts of one, and whole ones only"),
        ({"num_cpus": 0}, "any number of such workers"),
        ({"workers": 3, "islands": 2}, "3 workers cannot be divided over 2 islands"),
        ({"name": ""}, "name=''"),
        ({"start_limit_s": 0}, "start_limit_s=0"),
        ({"options": "--memory 8GB"}, "options='--memory 8GB' is not a list of words"),
        ({"options": [1]}, "options=[1] is not"),
        ({"name": "a\nb"}, "name='a"),
        ({"start_limit_s": float("inf")}, "start_limit_s=inf"),
        ({"start_limit_s": "1"}, "start_limit_s='1'"),
        ({"num_gpus": float("inf")}, "num_gpus=inf is not a number of at least 0"),
        ({"num_gpus": float("nan")}, "num_gpus=nan is not a number of at least 0"),
        ({"num_gpus": "1"}, "num_gpus='1' is not a number of at least 0"),
        ({"resources": {"tape": float("nan")}}, "resources={'tape': nan} is not"),
        ({"resources": {"GPU": 1}}, "CPUs and GPUs are num_cpus and num_gpus"),
    ],
)
def test_a_wrong_argument_is_named(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        gangway.ray.up(**arguments)  # type: ignore[arg-type]


def test_without_ray_the_message_says_what_to_install() -> None:
    with pytest.raises(gangway.GangwayError, match="pip install ray"):
        gangway.ray.up()


def wanted(**changes: object) -> _ray_wanted.Wanted:
    arguments: dict[str, object] = {
        **{"workers": 3, "devices": 1, "islands": 1, "num_cpus": 1, "num_gpus": 0},
        **{"per_node": None, "plugin": "cpu", "name": "gangway", "options": ()},
        **{"controller_cpus": 1, "resources": {}, "runtime_env": None},
    }
    return _ray_wanted.Wanted(**(arguments | changes))  # type: ignore[arg-type]


def test_the_last_node_has_the_rest_of_per_node() -> None:
    assert wanted(per_node=2).bundles() == [{"CPU": 3}, {"CPU": 1}]


def test_what_is_free_is_also_said_without_private_parts_of_ray() -> None:
    ray = types.SimpleNamespace(available_resources=lambda: {"CPU": 2.0, "memory": 9e9})
    words = _ray_wanted.room(ray, wanted(num_gpus=1, workers=1))
    assert words == "asked are 1 x (CPU 2, GPU 1); free are CPU 2, GPU 0 on all nodes together"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["/no/such/gangway", "certs", "x"], "gangway certs x cannot be run: "),
        (["sleep", "100"], "gangway 100 has not ended within 0.1 s"),
        (["sh", "-c", "echo why >&2; exit 3"], "exit 3 failed: why"),
    ],
)
def test_certificates_that_cannot_be_made_are_an_error_of_gangway(
    monkeypatch: pytest.MonkeyPatch, command: list[str], words: str
) -> None:
    monkeypatch.setattr(gangway.ray, "CERTS_LIMIT_S", 0.1 if "sleep" in command else 60)
    with pytest.raises(gangway.GangwayError, match=re.escape(words)):
        gangway.ray._run_certs(command)


class FakeActors:
    """In place of a Ray cluster's. The end of those that were started takes until it is allowed."""

    started = False
    nodes: list[str] = []
    lost_at_start = False
    ends: list[str] = []
    may_end = threading.Event()

    def __init__(self, *_: object) -> None:
        pass

    def check_name(self) -> None:
        pass

    def place(self, _: object) -> None:
        pass

    def start(self, tls: object, deadline: object, lost: object) -> str:
        self.started = True
        if self.lost_at_start:
            lost("has ended")  # type: ignore[operator]
        return "127.0.0.1:1"

    def end(self) -> None:
        if self.started:
            assert self.may_end.wait(20)
            self.ends.append("end")


@pytest.fixture
def without_ray(monkeypatch: pytest.MonkeyPatch) -> type[FakeActors]:
    class Fake(FakeActors):
        ends: list[str] = []
        may_end = threading.Event()

    monkeypatch.setattr(gangway.ray, "Actors", Fake)
    monkeypatch.setattr(gangway.ray, "_run_certs", lambda _: None)
    monkeypatch.setattr(gangway.ray, "_command", lambda: "true")
    return Fake


def cluster(limit_s: float = 60) -> gangway.ray.Cluster:
    context = types.SimpleNamespace(get_job_id=lambda: 1, namespace="mine")
    ray = types.SimpleNamespace(get_runtime_context=lambda: context, is_initialized=lambda: True)
    return gangway.ray.Cluster(ray, wanted(), _ray_wanted.Deadline(limit_s))


def test_the_next_cluster_waits_for_the_end_of_a_lost_one(without_ray: type[FakeActors]) -> None:
    first = cluster()
    with pytest.raises(gangway.GangwayError, match="already has the cluster 'gangway' up, at 127"):
        cluster()
    assert without_ray.ends == []
    first._note_loss("has ended with status -9")
    wait_for("the start of the end", lambda: "down" in repr(first), 20)
    with pytest.raises(gangway.GangwayError, match="has not ended within 0.2 s"):
        cluster(0.2)
    folder = pathlib.Path(first.tls).parent
    assert folder.exists()
    threading.Timer(0.2, without_ray.may_end.set).start()
    second = cluster()
    assert without_ray.ends[0] == "end" and not folder.exists()
    second.down()


def test_a_cluster_that_is_lost_as_it_starts_does_not_keep_its_name(
    without_ray: type[FakeActors],
) -> None:
    without_ray.may_end.set()
    without_ray.lost_at_start = True
    cluster()
    without_ray.lost_at_start = False
    cluster().down()
    assert gangway.ray._clusters == []


def test_a_forked_child_does_not_end_the_cluster_of_its_parent(
    without_ray: type[FakeActors],
) -> None:
    without_ray.may_end.set()
    made = cluster()
    folder = pathlib.Path(made.tls).parent
    wait, wake = os.pipe()
    looked, look = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(wake)
            made.down()
            gone = bool(without_ray.ends) or not folder.exists()
            os.close(look)
            os.read(wait, 1)  # it lives until its parent's cluster has ended
            os._exit(1 if gone else 0)
        finally:
            os._exit(2)
    os.close(wait)
    os.close(look)
    os.read(looked, 1)  # until the child has looked
    made.down()
    assert without_ray.ends == ["end"] and not folder.exists()
    os.close(wake)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def guarded(command: list[str]) -> tuple[_ray_place.Guarded, pathlib.Path]:
    made = _ray_place.Guarded(GUARD, {"key": b"secret"}, command)
    kind, folder = made.read()
    assert kind == "folder", folder
    return made, pathlib.Path(folder)


def test_a_guard_ends_its_command_and_removes_its_folder() -> None:
    text = "import sys, time; print(open(sys.argv[1] + '/key').read(), flush=True); time.sleep(100)"
    made, folder = guarded([sys.executable, "-c", text, "{folder}"])
    assert made.read() == ("line", "secret")
    assert (folder.stat().st_mode & 0o777, (folder / "key").stat().st_mode & 0o777) == (
        0o700,
        0o600,
    )
    made.end()
    assert made.read() == ("exit", str(-signal.SIGTERM))
    assert not folder.exists()


def test_a_guard_says_how_its_command_ended() -> None:
    made, folder = guarded([sys.executable, "-c", "print('a\\nb'); raise SystemExit(3)"])
    assert [made.read() for _ in range(3)] == [("line", "a"), ("line", "b"), ("exit", "3")]
    assert not folder.exists()
    made = _ray_place.Guarded(GUARD, {}, ["/no/such/command"])
    assert made.read()[0] == "folder"
    kind, why = made.read()
    assert kind == "error" and "/no/such/command" in why, (kind, why)


def test_no_output_of_a_command_passes_for_a_line_of_its_guard(tmp_path: pathlib.Path) -> None:
    (tmp_path / "kept").write_text("")
    forged = f"a\rfolder {tmp_path}\rexit 0\r\x0bexit 1\u2028exit 2"
    made, folder = guarded([sys.executable, "-c", f"print({forged!r}); raise SystemExit(3)"])
    assert made.read() == ("line", forged.replace("\r", "\\r"))
    assert made.read() == ("exit", "3")
    assert (tmp_path / "kept").exists() and not folder.exists()


@pytest.mark.parametrize("after", [False, True])
def test_a_folder_is_removed_only_where_guards_make_them(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    """Its name is right after a line of the command, or its parent is right."""
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    victim = tmp_path / ("gangway-ray-1" if after else "other")
    victim.mkdir()
    said = f"{'line x' if after else 'folder /dev/shm/../gangway-ray-2'}\nfolder {victim}"
    made = _ray_place.Guarded(f"print({said!r})", {})
    assert made.read()[0] == ("line" if after else "error")
    kind, why = made.read()
    assert (kind, why) == ("exit", "") if not after else str(victim) in why
    assert victim.exists()


def test_a_guard_ends_although_another_process_holds_its_pipe() -> None:
    made, folder = guarded(["sleep", "100"])
    kept = os.dup(made._asks.fileno())  # as a child has it that C code has forked
    made.end()
    assert made.read(20) == ("exit", str(-signal.SIGTERM))
    assert not folder.exists()
    os.close(kept)


def test_a_guard_that_does_not_answer_costs_no_more_than_the_limit() -> None:
    mark = "GANGWAY_TEST_GUARD", f"{os.getpid()}-stopped"
    made = _ray_place.Guarded(GUARD, {"key": b"secret"}, [], dict([mark]))
    folder = pathlib.Path(made.read()[1])
    (guard,) = processes_with("=".join(mark))
    os.kill(guard, signal.SIGSTOP)
    made.finish(0.2)
    assert not folder.exists()
    os.kill(guard, signal.SIGCONT)
    wait_for("its end", lambda: not processes_with("=".join(mark)), 10)


def test_sigterm_to_a_guard_ends_a_command_that_ignores_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_ray_place, "LEAVE_S", 0.5)
    mark = "GANGWAY_TEST_GUARD", f"{os.getpid()}-sigterm"
    command = [sys.executable, "-c", COMMAND.format("SIG_IGN")]
    made = _ray_place.Guarded(GUARD, {}, command, dict([mark]))
    folder = pathlib.Path(made.read()[1])
    assert made.read() == ("line", "on")
    (guard,) = [pid for pid in processes_with("=".join(mark)) if is_guard(pid)]
    os.kill(guard, signal.SIGTERM)
    assert made.read(20) == ("exit", str(-signal.SIGKILL))
    assert not folder.exists()


def test_sigterm_to_a_guard_that_makes_its_folder_leaves_nothing() -> None:
    line = "            return folder\n"
    assert line in GUARD
    early = GUARD.replace(line, f"            os.kill(os.getpid(), signal.SIGTERM)\n{line}")
    made = _ray_place.Guarded(early, {"key": b"secret"}, ["sleep", "100"])
    kind, folder = made.read()
    assert kind == "folder", folder
    assert made.read(20) == ("exit", str(-signal.SIGTERM))
    assert not os.path.exists(folder)


def raw_guard(parent: pathlib.Path, mark: str) -> tuple[subprocess.Popen[str], pathlib.Path, int]:
    """A guard of a folder, without an owner that removes it; with the process id."""
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", GUARD],
        env={**os.environ, "GANGWAY_TEST_GUARD": mark},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin and process.stdout
    asked = {"parents": [str(parent)], "files": {"key": ""}, "command": [], "leave_s": 1}
    print(json.dumps(asked), file=process.stdin, flush=True)
    kind, _, folder = process.stdout.readline().strip().partition(" ")
    assert kind == "folder", folder
    process.wait(20)
    (pid,) = processes_with(f"GANGWAY_TEST_GUARD={mark}")
    return process, pathlib.Path(folder), pid


def test_a_guard_removes_what_killed_ones_have_left_and_nothing_else(
    tmp_path: pathlib.Path,
) -> None:
    (tmp_path / "gangway-ray-of-no-guard").mkdir()
    guards = [raw_guard(tmp_path, f"{os.getpid()}-left-{n}") for n in range(2)]
    killed, alive = (folder for _, folder, _ in guards)
    os.kill(guards[0][2], signal.SIGKILL)
    wait_for("its end", lambda: not processes_with(f"GANGWAY_TEST_GUARD={os.getpid()}-left-0"), 10)
    assert (killed / "key").exists()
    guards.append(raw_guard(tmp_path, f"{os.getpid()}-left-2"))
    assert not killed.exists() and (alive / "key").exists() and (guards[2][1] / "key").exists()
    for process, _, _ in guards:
        assert process.stdin and process.stdout
        process.stdin.close()
        process.stdout.read()
        process.stdout.close()
    assert [path.name for path in tmp_path.iterdir()] == ["gangway-ray-of-no-guard"]


@pytest.mark.parametrize("works", [True, False])
def test_a_guard_takes_the_first_folder_that_can_hold_the_files(
    tmp_path: pathlib.Path, works: bool
) -> None:
    parents = ["/no/such/folder", *([str(tmp_path)] if works else [])]
    wanted = {"parents": parents, "files": {}, "command": ["echo", "{folder}"], "leave_s": 1}
    guard = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", GUARD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert guard.stdin and guard.stdout
    print(json.dumps(wanted), file=guard.stdin, flush=True)
    first, *rest = guard.stdout.read().splitlines()
    if works:
        folder = first.removeprefix("folder ")
        assert rest == [f"line {folder}", "exit 0"] and folder.startswith(str(tmp_path))
    else:
        assert "cannot make a folder for the certificates" in first and not rest
    guard.stdin.close()
    guard.stdout.close()
    guard.wait(20)
    assert not list(tmp_path.iterdir())


OWNER = """
import sys
from gangway import _ray_place, _ray_wanted
_ray_place.LEAVE_S = 1
made = _ray_place.Guarded(sys.argv[1], {}, [sys.executable, "-c", sys.argv[2]])
print(made.read()[1])
made.read()
print("up", flush=True)
made.read()
"""
COMMAND = (
    "import signal, time; signal.signal(15, signal.{}); print('on', flush=True); time.sleep(100)"
)


@pytest.mark.parametrize("victim", ["owner", "guard"])
def test_a_killed_owner_or_guard_ends_the_command(victim: str) -> None:
    """The guard ends it although it ignores SIGTERM, and the kernel by SIGTERM."""
    command = COMMAND.format("SIG_IGN" if victim == "owner" else "SIG_DFL")
    mark = "GANGWAY_TEST_GUARD", f"{os.getpid()}-{victim}"
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, GUARD, command],
        env={**os.environ, "PYTHONPATH": str(ROOT / "python"), mark[0]: mark[1]},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    folder = pathlib.Path(process.stdout.readline().strip())
    assert process.stdout.readline() == "up\n"
    running = processes_with("=".join(mark))
    assert len(running) == 3
    (guard,) = [pid for pid in running if is_guard(pid)]
    os.kill(process.pid if victim == "owner" else guard, signal.SIGKILL)
    assert process.wait(20) == (-signal.SIGKILL if victim == "owner" else 0)
    process.stdout.close()
    wait_for("its end", lambda: not processes_with("=".join(mark)), 10)
    assert not folder.exists()


FORKING = """
import os, sys, time, gangway.ray
guarded, folder = gangway.ray._hold_folder({})
print(folder)
print(os.fork() or time.sleep(100), flush=True)
time.sleep(100)
"""


def test_a_forked_child_does_not_keep_the_folder_of_its_killed_parent() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", FORKING],
        env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    folder = pathlib.Path(process.stdout.readline().strip())
    child = int(process.stdout.readline())
    process.kill()
    process.wait()
    try:
        wait_for("the end of the folder", lambda: not folder.exists(), 10)
    finally:
        os.kill(child, signal.SIGKILL)
        process.stdout.close()


def is_guard(pid: int) -> bool:
    words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return b"-I" in words


nightly = pytest.mark.nightly
timeout = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def nodes() -> Iterator[RayNodes]:
    """Three of two CPUs. A test may kill those above them that it adds."""
    with tempfile.TemporaryDirectory(prefix="gw-ray-") as folder:
        made = RayNodes(ray_python(), pathlib.Path(folder))
        try:
            for name in ("node1", "node2", "node3"):
                made.add(name)
            yield made
        finally:
            made.stop()


@pytest.fixture(autouse=True)
def nothing_left(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "nodes" in request.fixturenames:
        nodes: RayNodes = request.getfixturevalue("nodes")
        wait_for("nothing left on the nodes", lambda: not nodes.left(), 20)


LOSS = """
import sys, time, jax, numpy as np, gangway.ray
with gangway.ray.up(workers=3, devices=2, per_node=1) as cluster:
    cluster.connect()
    devices = jax.devices()
    mesh = jax.make_mesh((len(devices),), ("x",))
    rows = jax.device_put(np.arange(6.0), jax.NamedSharding(mesh, jax.P("x")))
    print("sum", float(jax.jit(lambda x: x.sum())(rows)), len(set(cluster.nodes)), flush=True)
    # The loss of Ray's head would end Ray, and that of the controller's node, worker 0's, the cluster.
    lost = next(worker for worker in (1, 2) if cluster.nodes[worker] != sys.argv[1])
    kept = 3 - lost
    add = jax.jit(lambda x: x + 1)
    arrays = {w: jax.device_put(np.full(4, float(w)), devices[2 * w]) for w in (kept, lost)}
    def result(x):
        try:
            return float(np.asarray(add(x))[0])
        except jax.errors.JaxRuntimeError as error:
            return str(error)
    print("holding; to lose:", cluster.nodes[lost], "worker", lost, flush=True)
    while not isinstance(result(arrays[lost]), str):
        time.sleep(0.1)
    print("error:", result(arrays[lost]), flush=True)
    print("kept:", result(arrays[kept]) == kept + 1, flush=True)
    deadline = time.monotonic() + 100
    def again():
        try:
            return result(jax.device_put(np.full(4, 41.0), devices[2 * lost]))
        except jax.errors.JaxRuntimeError as error:
            return str(error)
    while again() != 42.0 and time.monotonic() < deadline:
        time.sleep(0.2)
    print("back:", again(), flush=True)
"""


@nightly
@timeout
def test_a_lost_node_costs_its_arrays_and_its_place_comes_back_with_room(nodes: RayNodes) -> None:
    driver = nodes.start(LOSS, nodes.address_of("node1"))
    driver.wait_for_words("holding")
    assert "sum 15.0 3\n" in driver.output, driver.output
    ((node, worker),) = re.findall(r"to lose: 127.0.0.1(\d) worker (\d)", driver.output)
    nodes.kill(f"node{node}")
    driver.wait_for_words("kept: True")
    assert re.search(rf"error: DATA_LOSS.*island0/worker{worker}", driver.output), driver.output
    nodes.add(f"node{node}")  # for the tests that follow, too
    assert "back: 42.0\n" in driver.wait(150)


BASIC = """
import jax, numpy as np, ray, gangway, gangway.ray
def total():
    mesh = jax.make_mesh((jax.device_count(),), ("x",))
    rows = jax.device_put(np.arange(12.0), jax.NamedSharding(mesh, jax.P("x")))
    return jax.device_count(), float(jax.jit(lambda x: x.sum())(rows))
def said(function, **arguments):
    try:
        function(**arguments)
    except gangway.GangwayError as error:
        return " ".join(str(error).split())
"""
ROOM = (
    BASIC
    + """
import time
ray.init()
before = ray.available_resources()["CPU"]
for arguments in (dict(workers=40), dict(workers=4, per_node=1), dict(num_gpus=1), dict(resources={"tape": 1})):
    began = time.monotonic()
    print(said(gangway.ray.up, start_limit_s=3, **arguments))
    print("after", time.monotonic() - began < 8)
while ray.available_resources()["CPU"] != before:
    time.sleep(0.1)
print("room again")
"""
)


@nightly
@timeout
def test_without_room_the_error_says_what_is_asked_and_what_is_free(nodes: RayNodes) -> None:
    output = nodes.start(ROOM).wait()
    for words in (
        "asked are 1 x (CPU 2), 39 x (CPU 1); free are CPU 2 on 127.0.0.",
        "asked are 1 x (CPU 2), 3 x (CPU 1), each on a node of its own; free are CPU 2 on 127.0.0.",
        "asked are 1 x (CPU 2, GPU 1); free are CPU 2, GPU 0 on 127.0.0.",
        "asked are 1 x (CPU 2, tape 1); free are CPU 2, tape 0 on 127.0.0.",
    ):
        assert words in output, output
    assert output.count("Ray had no room for the cluster 'gangway' within 3 s") == 4, output
    assert output.count("after True") == 4, output


TWICE = (
    BASIC
    + """
import os, subprocess, sys
ray.init(namespace="mine")
first = gangway.ray.up(workers=2)
print(said(gangway.ray.up))
other = "import ray, gangway.ray; ray.init(namespace='mine'); gangway.ray.up()"
print(subprocess.run([sys.executable, "-c", other], stderr=subprocess.PIPE, text=True).stderr[-500:])
with gangway.ray.up(name="second") as second:
    print("both:", first.address != second.address, second.name)
wait, wake = os.pipe()
child = os.fork()
if not child:  # it has all descriptors of its parent until the cluster has ended
    os.close(wake)
    first.down()
    os.read(wait, 1)
    os._exit(0)
first.connect()
print(*total())
first.down()
first.down()
os.close(wake)
print("forked:", os.waitpid(child, 0)[1])
print(said(first.connect))
with gangway.ray.up() as again:
    print("again:", again.name)
"""
)


@nightly
@timeout
def test_a_name_belongs_to_one_cluster_and_is_free_again_afterwards(nodes: RayNodes) -> None:
    output = nodes.start(TWICE).wait()
    assert "this process already has the cluster 'gangway' up, at 127.0.0." in output, output
    assert "another process has a cluster 'gangway' up in the Ray namespace 'mine'" in output
    for words in ("both: True second", "2 66.0", "the cluster 'gangway' is down", "again: gangway"):
        assert words in output, output
    assert "forked: 0" in output, output


HOLD = (
    BASIC
    + """
import sys, time
cluster = gangway.ray.up(workers=3)
cluster.connect()
print("up", *total(), flush=True)
time.sleep(300)
"""
)


@nightly
@timeout
@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_everything_ends_with_the_script(nodes: RayNodes, by: signal.Signals) -> None:
    driver = nodes.start(HOLD)
    driver.wait_for_words("up 3 66.0")
    assert len(nodes.left()) > 4
    driver.process.send_signal(by)
    driver.ended(30)
    wait_for("nothing left on the nodes", lambda: not nodes.left(), 30)
    assert "room again" in nodes.start(ROOM_AGAIN).wait()


ROOM_AGAIN = """
import ray, time
ray.init()
while ray.available_resources().get("CPU") != ray.cluster_resources()["CPU"]:
    time.sleep(0.1)
print("room again")
"""


@nightly
@timeout
def test_a_node_without_gangway_or_with_another_version_is_named(
    nodes: RayNodes, tmp_path: pathlib.Path
) -> None:
    package = tmp_path / "gangway"
    (package / "_bin").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "_bin" / "gangway").write_text("#!/bin/sh\necho 0.0.1\n")
    (package / "_bin" / "gangway").chmod(0o755)
    nodes.add("node7", resources={"bare": 4}, environment={"PYTHONPATH": ""})
    nodes.add("node8", resources={"old": 4}, environment={"PYTHONPATH": str(tmp_path)})
    script = BASIC + "ray.init()\n"
    for resource in ("bare", "old"):
        script += f"print(said(gangway.ray.up, resources={{{resource!r}: 1}}))\n"
    output = nodes.start(script).wait()
    nodes.kill("node7")
    nodes.kill("node8")
    assert re.search(r"\(127.0.0.17\).* has no package gangway", output), output
    assert re.search(r"\(127.0.0.18\).* has gangway 0.0.1 .*, but this driver has 0.1", output), (
        output
    )
    assert output.count("install ") == 2, output


LOST = (
    BASIC
    + """
import sys, time
cluster = gangway.ray.up(workers=2)
cluster.connect()
print("up", *total(), flush=True)
x = jax.device_put(np.ones(4), jax.devices()[0])
while True:
    try:
        time.sleep(0.2)
        x = x + 1
        x.block_until_ready()
    except jax.errors.JaxRuntimeError as error:
        print("lost:", error, flush=True)
        break
deadline = time.monotonic() + 60
while time.monotonic() < deadline:
    try:
        print("again", *total(), flush=True)
        break
    except jax.errors.JaxRuntimeError as error:
        time.sleep(0.2)
print("waiting", flush=True)
while "down" not in repr(cluster):
    time.sleep(0.02)
with gangway.ray.up() as other:
    print("another:", other.name, flush=True)
time.sleep(300)
"""
)


def processes_of(nodes: RayNodes, role: str) -> list[int]:
    """Process ids of `gangway ROLE`."""
    return [int(each.partition(":")[0]) for each in nodes.left() if f"gangway {role} " in each]


@nightly
@timeout
def test_a_killed_worker_comes_back_and_a_killed_controller_ends_all(nodes: RayNodes) -> None:
    driver = nodes.start(LOST)
    driver.wait_for_words("up 2 66.0")
    (worker,) = [
        pid
        for pid in processes_of(nodes, "worker")
        if b"\0--index\0000\0" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    os.kill(worker, signal.SIGKILL)
    driver.wait_for_words("lost: DATA_LOSS")
    driver.wait_for_words("again 2 66.0")
    (controller,) = processes_of(nodes, "controller")
    os.kill(controller, signal.SIGKILL)
    driver.wait_for_words("the cluster 'gangway' is lost: its controller has ended with status -9")
    driver.wait_for_words("another: gangway")
    wait_for("nothing left but the script", lambda: not nodes.left(), 30)
    driver.process.kill()
    driver.ended()


GPUS = (
    BASIC
    + """
cluster = gangway.ray.up(workers=2, num_gpus=1, per_node=2, plugin="cpu")
print("up", len(cluster.nodes), flush=True)
import sys
sys.stdin.read()
import time; time.sleep(300)
"""
)


@nightly
@timeout
def test_each_worker_sees_its_own_gpus_and_the_controller_those_beside_it(nodes: RayNodes) -> None:
    """Ray takes our word for the number of GPUs of a node."""
    nodes.add("node6", cpus=3, gpus=2)
    driver = nodes.start(GPUS)
    driver.wait_for_words("up 2")

    def gpus(role: str) -> list[str]:
        read = [
            pathlib.Path(f"/proc/{pid}/environ").read_bytes() for pid in processes_of(nodes, role)
        ]
        return sorted(
            re.findall(rb"\0CUDA_VISIBLE_DEVICES=([^\0]*)", each)[0].decode() for each in read
        )

    assert gpus("worker") == ["0", "1"]
    assert gpus("controller")[0] in ("0", "1")
    driver.process.kill()
    driver.ended()
    wait_for("nothing left", lambda: not nodes.left(), 30)
    nodes.kill("node6")


ACTOR = (
    BASIC
    + """
@ray.remote(num_cpus=0, resources={"node:127.0.0.11": 0.01})  # no node that a test has killed
class Driver:
    def up(self):
        self.cluster = gangway.ray.up(workers=2)
        return self.cluster.access
@ray.remote(num_cpus=0)
def use(access):
    access.connect()
    return total()
ray.init()
driver = Driver.remote()
access = ray.get(driver.up.remote())
print(access)
print(ray.get([use.remote(access) for _ in range(2)]))
ray.kill(driver)
print("killed", flush=True)
"""
)


@nightly
@timeout
def test_an_actor_may_own_a_cluster_and_tasks_use_it(nodes: RayNodes) -> None:
    output = nodes.start(ACTOR).wait()
    assert "[(2, 66.0), (2, 66.0)]" in output, output
    assert re.search(r"^Access\(address='127.0.0.1\d:\d+'\)$", output, re.MULTILINE), output


SCRIPT = """
import signal, sys, jax
print(jax.device_count(), "devices", sys.argv[1:], flush=True)
if "wait" in sys.argv:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
    print("waiting", flush=True)
    signal.pause()
sys.exit(7)
"""


@nightly
@timeout
def test_the_command_runs_an_unmodified_script(nodes: RayNodes, tmp_path: pathlib.Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    driver = nodes.command("--workers", "2", "--devices", "2", str(script), "--an", "argument")
    assert driver.ended() == 7, driver.output
    assert "4 devices ['--an', 'argument']" in driver.output
    driver = nodes.command(str(script), "wait")
    driver.wait_for_words("waiting")
    driver.process.terminate()
    assert driver.ended(40) == 5, driver.output
    for arguments, words in (
        (["--workers", "0", "x.py"], "workers=0"),
        (["--workers", "50", "--start-limit", "2", "x.py"], "Ray had no room"),
        (["--plugin", "/no/such.so", "x.py"], "/no/such.so"),
    ):
        driver = nodes.command(*arguments)
        assert driver.ended(40) == 2, driver.output
        assert words in driver.output and "Traceback" not in driver.output, driver.output


@nightly
@timeout
def test_a_job_of_ray_runs_a_script(nodes: RayNodes, tmp_path: pathlib.Path) -> None:
    """Without --working-dir: the nodes of the test share the folder in which Ray keeps and removes those."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.replace("sys.exit(7)", "print('well')"))
    command = [nodes.python, "-m", "gangway.ray", "--workers", "3", "--per-node", "1", str(script)]
    output = nodes.submit(*command).wait()
    assert "3 devices []\nwell\n" in output, output
    assert nodes.submit(*command[:3], "--workers", "0", "x.py").ended() == 1


@nightly
@timeout
def test_the_snippet_of_the_guide(nodes: RayNodes) -> None:
    (snippet,) = re.findall(r"(?ms)^```python\n(.*?)^```$", GUIDE.read_text())
    assert "4 devices on 2 nodes: 28.0\n" in nodes.start(snippet).wait()
