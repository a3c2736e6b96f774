"""The Python package's messages, for everything that can be wrong before a cluster answers."""

from __future__ import annotations

import contextlib
import http.server
import pathlib
import socket
import subprocess
import sys
import tempfile
import threading
import tomllib
import warnings
from collections.abc import Callable, Iterator
from concurrent import futures

import grpc
import pytest
from harness import PATIENCE, ROOT, client_environment, free_port

sys.path.append(str(ROOT / "python"))

from gangway._token import SOCKET_PATH_MAX, find_socket

import gangway
from gangway import _backend, _watch

METHOD = "/xla.ifrt.proxy.GrpcIfrtService/GetVersion"


class GetVersion(grpc.GenericRpcHandler):
    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        if details.method != METHOD:
            return None
        return grpc.unary_unary_rpc_method_handler(lambda request, context: b"\x0a\x02\x08\x19")


@pytest.fixture
def serve() -> Iterator[Callable[..., int]]:
    """Starts a gRPC server with the given handlers and returns its port."""
    servers: list[grpc.Server] = []

    def start(*handlers: grpc.GenericRpcHandler) -> int:
        servers.append(grpc.server(futures.ThreadPoolExecutor(1), handlers=handlers))
        port = servers[-1].add_insecure_port("127.0.0.1:0")
        servers[-1].start()
        return int(port)

    yield start
    for server in servers:
        server.stop(None)


def test_a_front_door_passes(serve: Callable[..., int]) -> None:
    gangway.check_front_door(serve(GetVersion()), timeout_s=5)


def test_nothing_listens() -> None:
    port = free_port()
    with pytest.raises(gangway.NothingListeningError, match=rf"{port}.*gangway up --port {port}"):
        gangway.check_front_door(port)


def test_another_grpc_service(serve: Callable[..., int]) -> None:
    with pytest.raises(gangway.NotAFrontDoorError, match="speaks gRPC, but does not serve"):
        gangway.check_front_door(serve(), timeout_s=5)


def test_a_web_server() -> None:
    handler = type("Quiet", (http.server.SimpleHTTPRequestHandler,), {"log_message": print})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(gangway.NotAFrontDoorError, match="does not speak gRPC"):
            gangway.check_front_door(server.server_port, timeout_s=5)
        server.shutdown()


def test_a_port_that_is_silent() -> None:
    refused = pytest.raises(gangway.NotAFrontDoorError, match=r"did not answer within 0\.3 s")
    with socket.create_server(("127.0.0.1", 0)) as silent, refused:
        gangway.check_front_door(silent.getsockname()[1], timeout_s=0.3)


def test_a_port_that_hangs_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def hang_up() -> None:
            listener.accept()[0].close()

        threading.Thread(target=hang_up).start()
        with pytest.raises(gangway.NotAFrontDoorError, match="not a Gangway front door"):
            gangway.check_front_door(listener.getsockname()[1], timeout_s=5)


class AnswersThenStops(grpc.GenericRpcHandler):
    """Answers `count` calls; later ones wait until `go_on` is set."""

    def __init__(self, count: int) -> None:
        self.left = count
        self.go_on = threading.Event()

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        def answer(request: bytes, context: grpc.ServicerContext) -> bytes:
            self.left -= 1
            if self.left < 0:
                self.go_on.wait(20)
            return b"\x0a\x02\x08\x19"

        return grpc.unary_unary_rpc_method_handler(answer) if details.method == METHOD else None


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("INTERVAL_S", 0.05), ("LIMIT_S", 1.0), ("AGAIN_S", 0.1)):
        monkeypatch.setattr(_watch, name, value)


@pytest.mark.parametrize("renews", [False, True])
@pytest.mark.parametrize("answered", [1, 2, 3])
def test_a_front_door_that_stands_still_after_an_answer_is_noticed(
    serve: Callable[..., int], impatient: None, answered: int, renews: bool
) -> None:
    door = AnswersThenStops(answered)
    port = serve(door)
    assert _watch._stands_still(lambda: socket.create_connection(("127.0.0.1", port)), renews)
    door.go_on.set()


def test_a_front_door_that_never_answered_does_not_stand_still(
    serve: Callable[..., int], impatient: None
) -> None:
    door = AnswersThenStops(0)
    port = serve(door)
    with pytest.raises(TimeoutError):
        _watch._stands_still(lambda: socket.create_connection(("127.0.0.1", port)), renews=True)
    door.go_on.set()


def test_a_front_door_that_takes_no_more_connections_does_not_stand_still(
    serve: Callable[..., int], impatient: None
) -> None:
    server = grpc.server(futures.ThreadPoolExecutor(1), handlers=[GetVersion()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    connections: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as silent:  # as if out of descriptors

        def connect() -> socket.socket:
            to = silent.getsockname() if connections else ("127.0.0.1", port)
            connections.append(socket.create_connection(to))
            if (
                len(connections) == 3
            ):  # two limits have elapsed, and the first connection was answered
                server.stop(None)
            return connections[-1]

        with contextlib.suppress(OSError):  # where the end of the server is met
            assert not _watch._stands_still(connect, renews=True)
    assert len(connections) >= 3
    for connection in connections:
        connection.close()


def test_a_front_door_that_ends_connections_is_watched_all_the_time(
    serve: Callable[..., int], impatient: None
) -> None:
    """As a front door ends those over TCP that have no session: until it stops, each lives for 8 intervals."""
    door = AnswersThenStops(1000)
    port = serve(door)
    connections: list[socket.socket] = []

    def connect() -> socket.socket:
        connections.append(socket.create_connection(("127.0.0.1", port)))
        if len(connections) == 12:
            door.left = 0
        elif len(connections) > 8:
            connections[-9].close()
        return connections[-1]

    assert _watch._stands_still(connect, renews=True)
    assert len(connections) >= 12  # it watched until the front door stopped
    door.go_on.set()


@pytest.mark.parametrize("value", ["abc", "0", "70000", "-1", "²"])
def test_a_bad_gangway_port(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("GANGWAY_PORT", value)
    with pytest.raises(gangway.GangwayError, match="is not a port"):
        gangway.default_port()


def test_the_default_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GANGWAY_PORT", raising=False)
    assert gangway.default_port() == 38600
    monkeypatch.setenv("GANGWAY_PORT", "40123")
    assert gangway.default_port() == 40123


def test_an_old_jaxlib_is_refused_and_a_new_one_warned_about() -> None:
    with pytest.raises(gangway.UnsupportedVersionError, match=r"jaxlib 0\.7\.2 is too old.*pip"):
        _backend.check_jaxlib("0.7.2", "pjrt")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _backend.check_jaxlib("0.8.0", "ifrt")
        _backend.check_jaxlib("0.10.2", "ifrt")
        _backend.check_jaxlib("0.12.0.1", "ifrt")
        _backend.check_jaxlib("0.12.0.1", "pjrt")
    for door in ("ifrt", "pjrt"):
        with pytest.warns(UserWarning, match=r"0\.13\.0 is newer"):
            _backend.check_jaxlib("0.13.0", door)


def run(*arguments: str, port: int, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        env={**client_environment(port), **variables},
        capture_output=True,
        text=True,
        timeout=40 * PATIENCE,
    )


def test_connect_after_jax_was_used() -> None:
    code = "import jax; jax.devices(); import gangway; gangway.connect()"
    result = run("-c", code, port=free_port(), JAX_PLATFORMS="cpu")
    assert "AlreadyInitializedError: JAX is already in use" in result.stderr


def test_connect_without_a_cluster_and_again() -> None:
    code = (
        "import gangway\n"
        "for _ in range(2):\n"
        "    try: gangway.connect()\n"
        "    except gangway.NothingListeningError as error: print(error)\n"
        "import jax; jax.config.update('jax_platforms', 'cpu'); print(jax.devices())\n"
    )
    result = run("-c", code, port=free_port())
    assert result.stdout.count("no Gangway cluster listens on") == 2, result.stderr
    assert "CpuDevice" in result.stdout


def test_jax_finds_the_backend_by_itself() -> None:
    code = "import sys, jax; print('gangway' in sys.modules); jax.devices()"
    port = free_port()
    variables = _backend.environment(port)
    result = run("-c", code, port=port, **variables)
    assert result.stdout == "False\n"
    assert f"NothingListeningError: no Gangway cluster listens on 127.0.0.1:{port}" in result.stderr


@pytest.fixture
def short_folder() -> Iterator[str]:
    """pytest's own are nearly as long as a socket's path may be."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield folder


@pytest.mark.parametrize(
    ("root", "connects"),
    [
        ("state", True),
        ("state//", True),
        ("other/../state", True),
        ("st#te", False),  # gRPC reads these as something else
        ("st,te", False),
        ("st%41te", False),
        ("s" * 100, False),  # too long for the kernel
    ],
)
def test_the_socket_of_the_state_folder(
    monkeypatch: pytest.MonkeyPatch, short_folder: str, root: str, connects: bool
) -> None:
    monkeypatch.chdir(short_folder)
    for folder in ("other", f"{root}/7"):
        pathlib.Path(folder).mkdir(parents=True)
    monkeypatch.setenv("GANGWAY_STATE_DIR", root)
    assert find_socket(7) is None, "nothing listens"
    bound = f"{root}/7/front_door.sock"
    if len(bound) >= SOCKET_PATH_MAX:
        return
    with socket.create_server(bound, family=socket.AF_UNIX):
        found = find_socket(7)
        assert bool(found) == connects
        assert not found or (found.path.startswith("/") and found.bound == bound)


def test_run_prepares_the_script(serve: Callable[..., int], tmp_path: pathlib.Path) -> None:
    (tmp_path / "neighbour.py").write_text("")
    script = tmp_path / "script.py"
    script.write_text(
        "import os, sys, neighbour\n"
        "print(__name__, 'jax' in sys.modules, sys.argv[1:], os.environ['JAX_PLATFORMS'])\n"
        "raise SystemExit(5)\n"
    )
    result = run("-m", "gangway.run", str(script), "--port", "1", port=serve(GetVersion()))
    assert result.returncode == 5, result.stderr
    assert result.stdout == "__main__ False ['--port', '1'] proxy,cpu\n"


def test_run_without_a_cluster() -> None:
    result = run("-m", "gangway.run", "script.py", port=free_port())
    assert result.returncode == 2
    assert result.stderr.startswith("gangway run: no Gangway cluster listens on 127.0.0.1:")


def test_run_without_a_script(serve: Callable[..., int]) -> None:
    result = run("-m", "gangway.run", "/no/such.py", port=serve(GetVersion()))
    assert (result.returncode, result.stderr) == (2, "gangway run: no file '/no/such.py'\n")


def test_the_package_changes_nothing_for_other_jax_programs() -> None:
    result = run("-c", "import jax; print(jax.devices())", port=free_port(), JAX_PLATFORMS="")
    assert "CpuDevice" in result.stdout, result.stderr
    assert "proxy" not in result.stderr


def test_a_forked_child_writes_nothing_to_the_front_door(tmp_path: pathlib.Path) -> None:
    code = """
import os, socket, sys
from gangway._fork import keep_children_out

door, other = (socket.create_server(("127.0.0.1", 0)) for _ in range(2))
local, other_local = (socket.create_server(sys.argv[1] + name, family=socket.AF_UNIX) for name in "ab")
doors = (door, local, other, other_local)
connections = [socket.socket(each.family) for each in doors]
for connection, each in zip(connections, doors):
    connection.connect(each.getsockname())
keep_children_out(door.getsockname()[1], local.getsockname())
child = os.fork()
if child == 0:
    for each in connections:
        each.sendall(b"child")
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
for each in connections:
    each.sendall(b"parent")
    each.close()
for each in doors:
    with each.accept()[0] as accepted:
        print(accepted.makefile().read())
"""
    result = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "socket-")],
        env=client_environment(0),
        capture_output=True,
        text=True,
        timeout=20 * PATIENCE,
    )
    words = ["parent", "parent", "childparent", "childparent"]
    assert result.stdout.split() == words, result.stdout + result.stderr


def test_the_wheels_metadata_agree_with_the_build() -> None:
    """The wheel itself: test_wheel.py."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == gangway.__version__
    oldest = ".".join(map(str, _backend.OLDEST_JAXLIB))
    assert project["dependencies"] == [f"jax>={oldest}"]


def test_the_wheels_command_without_its_binary() -> None:
    module, _, function = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "scripts"
    ]["gangway"].partition(":")
    result = run("-c", f"from {module} import {function}; {function}()", port=free_port())
    assert result.returncode == 1
    assert result.stderr.endswith("is missing: install the wheel gangway-runtime\n"), result.stderr
