"""Clusters started process by process from a cluster.toml, over TLS, on loopback addresses that stand for
hosts. A peer with no certificate, another cluster's certificate or no token is rejected.
"""

from __future__ import annotations

import collections
import contextlib
import os
import pathlib
import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import pytest
from harness import GANGWAY, PATIENCE, PYTHON, wait_for
from hosts import SUM, Hosts, HostsWithRoles
from test_strangers import Peaks

pytestmark = pytest.mark.timeout(150)


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    made = Hosts(tmp_path_factory.mktemp("hosts"), tls=True, settings="collectives = 'gangway'\n")
    made.start_workers()  # before the controller
    try:
        for index in range(2):
            made.wait_for(f"worker{index}", "waiting for the controller")
        made.start_controller()
        made.wait_for("controller", "ready: ")
        yield made
    finally:
        made.stop()


def right(result: subprocess.CompletedProcess[str]) -> bool:
    count, _, sums = result.stdout.strip().partition(" ")
    assert result.returncode == 0, result.stdout + result.stderr
    return int(count) == 3 and all(abs(s / SUM - 1) < 1e-5 for s in eval(sums))


def test_a_script_beside_its_own_front_door_uses_a_remote_cluster(hosts: Hosts) -> None:
    assert right(hosts.connect())
    assert "waiting" in hosts.log("worker0")
    assert hosts.log("worker0").count("waiting for the controller") == 1, hosts.log("worker0")
    # The front door ended with the script.
    wait_for("no session left", lambda: not hosts.status()["sessions"], 10)


def test_a_script_on_the_controllers_host_finds_the_token(hosts: Hosts) -> None:
    assert right(hosts.script("--port", str(hosts.front_door)))


# The sum of two negative zeros is negative with Gangway's collectives, and positive with the plugin's.
ZEROS = """
import jax, numpy as np
from jax.sharding import Mesh, PartitionSpec as P
mesh = Mesh(np.asarray(jax.devices()[:2]), ("x",))
total = jax.shard_map(lambda x: jax.lax.psum(x, "x"), mesh=mesh, in_specs=P("x"), out_specs=P())
print(np.signbit(np.asarray(jax.jit(total)(np.full(2, -0.0, np.float32)))[0]))
"""


def test_the_file_says_whose_collectives_a_worker_runs(hosts: Hosts) -> None:
    script = hosts.folder / "zeros.py"
    script.write_text(ZEROS)
    result = hosts.run("run", "--port", str(hosts.front_door), str(script))
    assert result.stdout.strip() == "True", result.stdout + result.stderr


def certificates(hosts: Hosts, folder: pathlib.Path, *flags: str) -> pathlib.Path:
    made = hosts.run("certs", str(folder), *flags)
    assert made.returncode == 0, made.stderr
    return folder


def test_another_clusters_certificate_is_refused_SE_1(hosts: Hosts, tmp_path: pathlib.Path) -> None:
    other = certificates(hosts, tmp_path / "other", "--hosts", "127.0.0.2,127.0.0.3")
    result = hosts.connect(other)
    assert result.returncode == 2, result.stdout + result.stderr
    assert "not from that cluster's CA" in result.stderr, result.stderr
    # A client that trusts the right CA, but presents a certificate of another CA.
    (other / "ca.pem").write_bytes((hosts.folder / "tls" / "ca.pem").read_bytes())
    (other / "token").write_bytes((hosts.folder / "tls" / "token").read_bytes())
    result = hosts.connect(other)
    assert result.returncode == 2, result.stdout + result.stderr
    assert "gangway certs" in result.stderr, result.stderr
    assert right(hosts.connect())


def test_a_wrong_token_is_refused_under_the_right_certificate(
    hosts: Hosts, tmp_path: pathlib.Path
) -> None:
    copy = tmp_path / "tls"
    copy.mkdir()
    for name in ("ca.pem", "cert.pem", "key.pem"):
        (copy / name).write_bytes((hosts.folder / "tls" / name).read_bytes())
        (copy / name).chmod(0o600)
    (copy / "token").write_text("0" * 64)
    (copy / "token").chmod(0o600)
    result = hosts.connect(copy)
    assert result.returncode == 2, result.stdout + result.stderr
    assert "presented a wrong token" in result.stderr, result.stderr
    (copy / "token").chmod(0o644)
    result = hosts.connect(copy)
    assert result.returncode == 2 and "chmod 600" in result.stderr, result.stderr
    assert right(hosts.connect())


def test_a_jax_client_without_the_token_is_refused(hosts: Hosts, tmp_path: pathlib.Path) -> None:
    for token in ("", "0" * 64):
        result = subprocess.run(
            [PYTHON, "-c", "import gangway; gangway.connect()"],
            env={
                **hosts.environment,
                "GANGWAY_STATE_DIR": str(tmp_path),  # another user's folder
                "GANGWAY_TOKEN": token,
            },
            capture_output=True,
            text=True,
            timeout=60 * PATIENCE,
        )
        words = "a wrong token" if token else "no token"
        assert result.returncode == 1, result.stdout + result.stderr
        assert f"presented {words}" in result.stderr, result.stderr
        assert "--state-dir" in result.stderr, result.stderr


def answer(hosts: Hosts, certificate: pathlib.Path | None) -> bytes:
    """The control port's reply to the first bytes of HTTP/2, over TLS."""
    context = ssl.create_default_context(cafile=str(hosts.folder / "tls" / "ca.pem"))
    context.set_alpn_protocols(["h2"])
    if certificate:
        context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    with (
        socket.create_connection(("127.0.0.1", hosts.control), 10) as raw,
        context.wrap_socket(raw, server_hostname="127.0.0.1") as peer,
    ):
        peer.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
        return peer.recv(9)


def test_nobody_without_a_certificate_gets_through_the_handshake_SE_1(
    hosts: Hosts, tmp_path: pathlib.Path
) -> None:
    assert answer(hosts, hosts.folder / "tls")[3:4] == b"\x04", "SETTINGS"
    for certificate in (None, certificates(hosts, tmp_path / "other")):
        try:
            said = answer(hosts, certificate)
        except OSError:  # ssl.SSLError: an alert
            said = b""
        assert not said
    with socket.create_connection(("127.0.0.1", hosts.control), 10) as plain:
        plain.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
        said = plain.recv(9)
        assert said[3:4] != b"\x04", "no HTTP/2 without TLS"
    assert right(hosts.connect())


def open_files(pid: int) -> collections.Counter[str]:
    """What the process's descriptors lead to, except sockets and the kernel's own."""
    files = []
    for descriptor in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):  # closed since it was listed
            files.append(os.readlink(descriptor))
    return collections.Counter(name for name in files if name.startswith("/"))


def test_workers_come_back_to_a_controller_that_was_restarted(hosts: Hosts) -> None:
    workers = [hosts.processes[f"worker{index}"].pid for index in range(2)]
    files = [open_files(pid) for pid in workers]
    hosts.end("controller")
    for index in range(2):
        hosts.wait_for(f"worker{index}", "is gone")
        hosts.wait_for(f"worker{index}", "waiting for the controller", 2)
    hosts.start_controller()
    hosts.wait_for("controller", "ready: ", 2)
    for pid, before in zip(workers, files, strict=True):  # each process has restarted itself
        assert not open_files(pid) - before
    assert right(hosts.connect())


def test_certificates_are_never_overwritten_and_private(
    hosts: Hosts, tmp_path: pathlib.Path
) -> None:
    folder = certificates(hosts, tmp_path / "tls", "--hosts", "a.example,10.1.2.3", "--days", "9")
    again = hosts.run("certs", str(folder))
    assert again.returncode == 1 and "is there already" in again.stderr, again.stderr
    assert {path.name for path in folder.iterdir()} == {
        *("ca.pem", "ca.key", "cert.pem", "key.pem", "secret", "verifiers", "token"),
        *("compiler.token", "scheduler.token", "tool.token", "worker.token"),
    }
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in folder.iterdir())
    text = subprocess.run(
        ["openssl", "x509", "-in", str(folder / "cert.pem"), "-noout", "-ext", "subjectAltName"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for name in ("DNS:localhost", "IP Address:127.0.0.1", "DNS:a.example", "IP Address:10.1.2.3"):
        assert name in text, text
    for wrong in (["--hosts", "a b"], ["--hosts", "x,DNS:y"], ["--days", "0"]):
        result = hosts.run("certs", str(tmp_path / "none"), *wrong)
        assert result.returncode == 1 and "gangway certs: " in result.stderr, result.stderr
        assert not (tmp_path / "none").exists()


@pytest.fixture(scope="module")
def roles(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostsWithRoles]:
    made = HostsWithRoles(tmp_path_factory.mktemp("roles"))
    try:
        made.start_controller()
        made.start_workers()
        made.wait_for("controller", "ready: ")
        yield made
    finally:
        made.stop()


def test_each_process_needs_only_its_own_folder_SE_1(roles: HostsWithRoles) -> None:
    assert right(roles.connect(roles.add("bob", "client")))
    assert right(roles.script("--port", str(roles.front_door)))
    assert len(roles.status()["islands"][0]["workers"]) == 2


def test_a_clients_folder_opens_no_other_role_SE_1(roles: HostsWithRoles) -> None:
    folder = roles.add("carol", "client")
    # Her certificate names no host, so she needs another's to begin.
    worker = ("worker", "--config", str(roles.config), "--island", "0", "--index", "0")
    result = roles.run(*worker, "--tls", str(folder))
    assert result.returncode == 1 and "does not name the host" in result.stderr, result.stderr
    # A worker's certificate with a client's token.
    mixed = roles.add("mixed", "worker", roles.addresses[0])
    (mixed / "worker.token").write_bytes((folder / "token").read_bytes())
    result = roles.run(*worker, "--tls", str(mixed))
    assert result.returncode == 1, result.stdout + result.stderr
    for words in ("worker", "the token of role client, which does not open role worker"):
        assert words in result.stderr, result.stderr
    # A client's token and a worker's certificate.
    shutil.copy(folder / "token", mixed / "token")
    result = roles.connect(mixed)
    assert result.returncode != 0, result.stdout
    words = f"the certificate worker/{mixed.name}, which does not open role client"
    assert words in result.stdout + result.stderr, result.stdout + result.stderr
    assert right(roles.connect(roles.add("dora", "client")))


def test_a_revoked_client_loses_its_session_within_a_second_and_stays_out_SE_1(
    roles: HostsWithRoles, tmp_path: pathlib.Path
) -> None:
    alice = roles.add("alice", "client")
    other = roles.add("eve", "client")
    script = tmp_path / "loop.py"
    script.write_text(
        "import jax, numpy as np, time\n"
        "print('go', flush=True)\n"
        "while True:\n"
        "    try:\n"
        "        float(jax.device_put(np.ones(8)).sum())\n"
        "    except jax.errors.JaxRuntimeError as error:\n"
        "        if 'The session has ended' not in str(error):\n"  # the worker's word may come first
        "            raise\n"
        "    time.sleep(0.05)\n"
    )
    running = subprocess.Popen(
        [str(GANGWAY), "run", *roles.connect_flags(alice), str(script)],
        env=roles.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert running.stdout
        for line in running.stdout:
            if line.strip() == "go":
                break
        wait_for("its session", lambda: len(roles.status()["sessions"]) == 1, 20)
        roles.revoke("alice")
        began = time.monotonic()
        wait_for("its session gone", lambda: not roles.status()["sessions"], 2)
        print(f"its session was gone {time.monotonic() - began:.2f} s after the list came")
        output, _ = running.communicate(timeout=20 * PATIENCE)
    finally:
        running.kill()
    assert running.returncode not in (0, -9), output
    assert "client/alice was revoked" in output, output
    result = roles.connect(alice)
    assert result.returncode == 2, result.stdout + result.stderr
    assert "client/alice was revoked" in result.stderr, result.stderr
    assert right(roles.connect(other))


def test_a_revoked_worker_is_down_until_its_place_has_another_certificate_SE_1(
    roles: HostsWithRoles,
) -> None:
    roles.revoke("worker1")
    process = roles.processes.pop("worker1")
    assert process.wait(20 * PATIENCE) == 1, roles.log("worker1")
    assert "worker/worker1 was revoked" in roles.log("worker1"), roles.log("worker1")
    wait_for(
        "the worker down",
        lambda: [w["state"] for w in roles.status()["islands"][0]["workers"]] == ["up", "down"],
        10,
    )
    shutil.rmtree(roles.folder / "tls" / "worker1")
    roles.add("worker1", "worker", roles.addresses[1])
    roles.start("worker1", "worker", "--island", "0", "--index", "1")
    roles.wait_for("controller", "ready: ", 1)
    wait_for(
        "the worker up",
        lambda: [w["state"] for w in roles.status()["islands"][0]["workers"]] == ["up", "up"],
        20,
    )
    assert right(roles.connect(roles.add("frank", "client")))


# Devices 0 and 1 are worker 0's, device 2 is worker 1's.
COPIES = """
import jax, numpy as np
for source, target in ((0, 2), (2, 0)):
    array = jax.device_put(np.ones(1 << 18, np.float32), jax.devices()[source])
    assert float(array.sum()) == 1 << 18
    try:
        print(float(jax.device_put(array, jax.devices()[target]).sum()))
    except jax.errors.JaxRuntimeError as error:
        print("cannot copy:", error, flush=True)
"""


@pytest.mark.nightly
def test_certificates_that_expired_or_are_anothers_open_no_link_SE_1(
    tmp_path: pathlib.Path,
) -> None:
    """Worker 1's certificate is of an authority that the controller trusts, and clients and worker 0 do not."""
    made = HostsWithRoles(tmp_path)
    tls, other = tmp_path / "tls", certificates(made, tmp_path / "other")
    own = (tls / "ca.pem").read_bytes()
    (tls / "controller" / "ca.pem").write_bytes(own + (other / "ca.pem").read_bytes())
    made.reissue(tls / "worker1", other, days=9)
    good, old, foreign = (made.add(name, "client") for name in ("good", "old", "foreign"))
    made.reissue(old, tls, days=-1)
    made.reissue(foreign, other, days=9)
    (foreign / "ca.pem").write_bytes(own + (other / "ca.pem").read_bytes())
    try:
        made.start_controller()
        made.start_workers()
        made.wait_for("controller", "ready: ")
        began = time.monotonic()
        result = made.connect(old)
        assert result.returncode == 2, result.stdout + result.stderr
        assert f"{old} is not from that cluster's CA, has expired" in result.stderr, result.stderr
        assert time.monotonic() - began < 15 * PATIENCE
        # The data stream to worker 1, and that of worker 0.
        for client, worker in ((good, "worker1"), (foreign, "worker0")):
            began = time.monotonic()
            result = made.connect(client)
            assert result.returncode == 1, result.stdout + result.stderr
            assert f"The data stream of island0/{worker} was lost" in result.stderr, result.stderr
            assert "it cannot be opened: the link to 127.0.0." in result.stderr, result.stderr
            print(f"{client.name}: {time.monotonic() - began:.1f} s", result.stderr[-600:])
        # From worker to worker, for the controller's front door, which reaches both.
        script = tmp_path / "copies.py"
        script.write_text(COPIES)
        began = time.monotonic()
        result = made.run("run", "--port", str(made.front_door), str(script))
        assert result.stdout.count("cannot copy: ") == 2, result.stdout + result.stderr
        print(f"copies: {time.monotonic() - began:.1f} s", result.stdout)
        made.end("worker0")
        made.reissue(tls / "worker0", tls, days=-1)
        made.start("worker0", "worker", "--island", "0", "--index", "0")
        assert made.processes.pop("worker0").wait(20 * PATIENCE) == 1, made.log("worker0")
        assert "cert.pem has expired" in made.log("worker0"), made.log("worker0")
    finally:
        made.stop()


def test_beyond_loopback_only_with_tls_SE_1(tmp_path: pathlib.Path) -> None:
    plain = Hosts(tmp_path, tls=False)
    text = plain.config.read_text()
    plain.config.write_text(text.replace("host = '127.0.0.1'", "host = '10.0.0.1'"))
    result = plain.run("controller", "--config", str(plain.config))
    assert result.returncode == 1, result.stdout
    assert "not loopback" in result.stderr and "gangway certs" in result.stderr, result.stderr
    plain.config.write_text(text.replace("127.0.0.2", "10.0.0.2"))
    worker = ("worker", "--config", str(plain.config), "--island", "0", "--index", "0")
    result = plain.run(*worker)
    assert result.returncode == 1, result.stdout
    assert "not loopback" in result.stderr and "gangway certs" in result.stderr, result.stderr
    # Every peer would reject a certificate that does not name the host.
    certificates(plain, tmp_path / "tls", "--hosts", "10.0.0.3")
    result = plain.run(*worker, "--tls", str(tmp_path / "tls"))
    assert result.returncode == 1 and "10.0.0.2" in result.stderr, result.stderr


def test_bad_configurations_are_named_by_line(tmp_path: pathlib.Path) -> None:
    plain = Hosts(tmp_path, tls=False)
    plain.config.write_text("[controller]\nhost = '127.0.0.1'\nport = 5\n")
    result = plain.run("controller", "--config", str(plain.config))
    assert result.returncode == 1
    assert "cluster.toml:3: " in result.stderr and "control_port" in result.stderr, result.stderr


# Strangers whose first message is large. Prints how each of their links ended.
LARGE_HELLOS = """
import grpc, sys, threading
message = b"x" * (256 << 20)
def send():
    options = [("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(sys.argv[1], options) as channel:
        try:
            print(list(channel.stream_stream("/gangway.Link/Open")(iter([message]), timeout=60)))
        except grpc.RpcError as error:
            sys.stdout.write(error.code().name + "\\n")
threads = [threading.Thread(target=send) for _ in range(3)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""


def listening(pids: set[int]) -> dict[str, int]:
    """The addresses at which the processes listen for TCP, and which of them does."""
    inodes = {}
    for pid in pids:
        for descriptor in pathlib.Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                inodes[os.readlink(descriptor)] = pid
    found = {}
    for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
            address, port = fields[1].split(":")
            host = socket.inet_ntoa(bytes.fromhex(address)[::-1])
            found[f"{host}:{int(port, 16)}"] = inodes[f"socket:[{fields[9]}]"]
    return found


def strangers_with_large_hellos_cost_little(plain: Hosts) -> None:
    pids = {process.pid for process in plain.processes.values()}
    pids |= {child.pid for pid in pids for child in psutil.Process(pid).children(recursive=True)}
    ports = listening(pids)
    worker = next(address for address in ports if address.startswith(plain.addresses[0]))
    for address in (f"127.0.0.1:{plain.control}", worker):
        with Peaks(ports[address]) as peaks:
            ended = subprocess.run(
                [sys.executable, "-c", LARGE_HELLOS, address],
                capture_output=True,
                text=True,
                timeout=100 * PATIENCE,
            )
        assert ended.stdout.split() == ["UNAVAILABLE"] * 3, ended.stdout + ended.stderr
        print(address, peaks.more())
        assert peaks.more()["bytes"] <= 512 << 20, (address, peaks.more())


def test_a_plain_cluster_by_hand_uses_the_token_of_the_state_folder(
    tmp_path: pathlib.Path,
) -> None:
    plain = Hosts(tmp_path, tls=False)
    plain.start_controller()
    try:
        token = tmp_path / "state" / str(plain.front_door) / "token"
        wait_for("the token", token.exists, 20)
        assert token.stat().st_mode & 0o777 == 0o600
        plain.start_workers()
        plain.wait_for("controller", "ready: ")
        assert right(plain.script("--port", str(plain.front_door)))
        stranger = plain.run(
            *("worker", "--config", str(plain.config), "--index", "1"),
            *("--state-dir", str(tmp_path / "another")),
        )
        assert stranger.returncode == 1 and "token" in stranger.stderr, stranger.stderr
        strangers_with_large_hellos_cost_little(plain)
        assert right(plain.script("--port", str(plain.front_door)))
    finally:
        plain.stop()
