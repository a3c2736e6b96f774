"""Places that any host claims by an index: a cluster that options alone declare, without TLS on loopback and with
certificates for any host, and what goes wrong with it.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator, Mapping
from functools import partial

import pytest
from harness import free_port, wait_for
from places import Places

pytestmark = pytest.mark.timeout(150)

SCRIPT = (
    "import jax, numpy as np\n"
    "from jax.sharding import Mesh, NamedSharding, PartitionSpec as P\n"
    "devices = jax.devices()\n"
    "mesh = Mesh(np.asarray(devices), ('x',))\n"
    "x = jax.device_put(np.arange(64, dtype='float32'), NamedSharding(mesh, P('x')))\n"
    "print(len(devices), sorted(d.slice_index for d in devices), float(jax.jit(lambda x: x.sum())(x)))\n"
)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Places]:
    """Two islands of two workers of one device, over TLS that names no host."""
    folder = tmp_path_factory.mktemp("places")
    made = Places(folder, folder / "tls")
    assert made.certificates().returncode == 0
    made.start_controller("--islands", "1", "--workers", "4")
    try:
        for index in range(3):
            made.start_worker(index)
        yield made
    finally:
        made.stop()


def script(
    places: Places,
    *flags: str,
    text: str = SCRIPT,
    environment: Mapping[str, str] | None = None,
) -> str:
    path = places.folder / "script.py"
    path.write_text(text)
    result = places.run("run", *flags, str(path), environment=environment)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout.strip()


def claimed(places: Places, name: str) -> bool:
    return f"{name} is up" in places.log("controller")


def status_from_elsewhere(places: Places) -> list[str]:
    """A tool on another host waits with a folder of its own."""
    return ["status", "--wait", "120", "--connect", places.address, *places.tls_flags()]


def test_the_absent_place_is_named_until_a_worker_claims_it(places: Places) -> None:
    for name in ("worker0", "worker1", "worker2"):
        wait_for(name, partial(claimed, places, name), 40)
    result = places.ready(0)
    assert result.returncode == 1, result.stdout
    assert "still waits for island0/worker3" in result.stderr, result.stderr
    places.start("status", status_from_elsewhere(places))
    places.start_worker(3)
    assert places.ended("status", 60) == 0, places.log("status")
    workers = places.status()["islands"][0]["workers"]
    assert [worker["state"] for worker in workers] == ["up"] * 4


def test_a_script_finds_the_cluster_by_two_variables(places: Places) -> None:
    assert places.ready().returncode == 0
    where = {"GANGWAY_ADDRESS": places.address, "GANGWAY_TLS": str(places.tls)}
    assert script(places, environment=where) == "4 [0, 0, 0, 0] 2016.0"
    assert script(places, "--port", str(places.front_door)) == "4 [0, 0, 0, 0] 2016.0"
    for command in (["why"], ["doctor"], ["status"]):
        result = places.run(*command, environment=where)
        assert result.returncode == 0, result.stdout + result.stderr


def test_a_wrong_index_and_a_claimed_place_are_refused_by_name(places: Places) -> None:
    assert places.ready().returncode == 0
    result = places.run(*places.worker_command(4))
    assert result.returncode == 1, result.stdout
    for words in ("the worker of index 4 is not declared", "the islands have workers: 4"):
        assert words in result.stderr, result.stderr
    result = places.run(*places.worker_command(0, "--island", "7"))
    assert result.returncode == 1 and "island 7 is not declared" in result.stderr, result.stderr
    result = places.run(*places.worker_command(2))
    assert result.returncode == 1, result.stdout
    assert "island0/worker2 is already running: process" in result.stderr, result.stderr
    assert places.ready(0).returncode == 0, "the first process keeps its place"


def test_a_peer_without_the_workers_token_learns_nothing(
    places: Places, tmp_path: pathlib.Path
) -> None:
    """Not with a client's folder of the cluster, nor with the folder of another one."""
    result = places.run("certs", str(places.tls), "--add", "eve", "--role", "client")
    assert result.returncode == 0, result.stderr
    eve = pathlib.Path(f"{places.tls}/eve")
    (eve / "worker.token").write_bytes((eve / "token").read_bytes())
    (eve / "worker.token").chmod(0o600)
    claim = ["worker", "--index", "0", "--connect", places.address, "--connect-limit", "1"]
    result = places.run(*claim, "--tls", str(eve))
    assert result.returncode == 1, result.stdout
    assert "which does not open role worker" in result.stderr, result.stderr
    other = Places(tmp_path, tmp_path / "tls")
    assert other.certificates().returncode == 0
    result = places.run(*claim, "--tls", str(other.tls))
    assert result.returncode == 1, result.stdout
    assert "did not answer within 1 s" in result.stderr, result.stderr
    assert "is not from that cluster's CA" in result.stderr, result.stderr


def test_a_worker_of_its_own_folder_needs_no_host_in_it(places: Places) -> None:
    result = places.run("certs", str(places.tls), "--add", "w", "--role", "worker")
    assert result.returncode == 0, result.stderr
    assert places.ready().returncode == 0
    assert places.end("worker1") == 0, places.log("worker1")
    own = [flag.replace(str(places.tls), f"{places.tls}/w") for flag in places.worker_command(1)]
    places.start("worker1", own)
    wait_for("its place claimed", lambda: places.log("controller").count("worker1 is up") == 2, 40)
    assert script(places, "--port", str(places.front_door)).startswith("4 ")


def test_an_option_goes_before_its_variable(places: Places) -> None:
    claim = ["worker", "--index", "0", "--connect", places.address, "--tls", "/given"]
    result = places.run(*claim, environment={"GANGWAY_TLS": "/variable"})
    assert result.returncode != 0 and "/given/worker.token" in result.stderr, result.stderr


def test_on_loopback_without_tls_and_with_a_limit(tmp_path: pathlib.Path) -> None:
    """Two islands of two workers: an index counts through both."""
    places = Places(tmp_path)
    places.start_controller("--islands", "2", "--workers", "2", "--ready-limit", "100")
    try:
        for index in range(4):
            places.start_worker(index)
        result = places.ready()
        assert result.returncode == 0, result.stdout + result.stderr
        assert (
            script(
                places,
                "--port",
                str(places.front_door),
                text="import jax; print(len(jax.devices()))",
            )
            == "4"
        )
        # A second controller of the same port.
        again = ["controller", "--port", str(places.front_door), "--listen", "127.0.0.1:0"]
        result = places.run(*again)
        assert result.returncode == 1, result.stdout
        assert f"port {places.front_door}" in result.stderr, result.stderr
        # And one that would overwrite its address.
        again = ["controller", "--port", "0", "--listen", "127.0.0.1:0"]
        result = places.run(*again, "--address-file", str(places.address_file))
        assert result.returncode == 1, result.stdout
        assert f"another controller listens at {places.address}" in result.stderr, result.stderr
    finally:
        places.stop()
    assert not places.address_file.exists()


def test_mistakes_are_said_at_once_and_leave_nothing(tmp_path: pathlib.Path) -> None:
    places = Places(tmp_path)
    notes = tmp_path / "notes"
    notes.write_text("mine")
    for flags, words in (
        (["--listen", "0.0.0.0:0"], "not loopback"),
        (["--listen", "nowhere"], "host and port"),
        (["--workers", "4096", "--devices", "2"], "8192 devices"),
        (["--tls", str(tmp_path / "none")], "cannot read"),
        (["--plugin", "/nowhere.so"], "no PJRT plugin can be read"),
        (["--ready-limit", "1"], "still waiting for island0/worker0"),
        (["--address-file", str(notes)], "holds no controller's address"),
    ):
        listen = [] if "--listen" in flags else ["--listen", "127.0.0.1:0"]
        result = places.run("controller", "--port", "0", *listen, *flags)
        assert result.returncode == 1, (flags, result.stdout)
        assert words in result.stderr, (flags, result.stderr)
    assert notes.read_text() == "mine"
    nobody = f"127.0.0.1:{free_port()}"
    for command, words in (
        (["worker", "--index", "0"], "no cluster runs on port"),
        (["worker", "--index", "0", "--connect", nobody], "cannot read"),
        (["status", "--wait", "1", "--connect", nobody], "cannot read"),
    ):
        result = places.run(*command)
        assert result.returncode == 1, (command, result.stdout)
        assert words in result.stderr, (command, result.stderr)
