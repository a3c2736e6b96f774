"""Bad bytes, vanishing clients and a full disk: clear messages, and no effect on other clients."""

from __future__ import annotations

import os
import pathlib
import random
import socket
import textwrap
from collections.abc import Callable, Iterator

from faultlib import full_disk
from harness import PATIENCE, Cluster, wait_for
from test_limits import run_script, start_script

NewCluster = Callable[..., Cluster]
ANSWER_S = 2
HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def garbage() -> Iterator[bytes]:
    """Bytes that a foreign or malicious peer may send; the same on every run."""
    chance = random.Random(7)
    yield b""
    yield b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
    yield HTTP2
    yield HTTP2 + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00" + b"\xff\xff\xff\x01\x04\x00\x00\x00\x01"
    for size in (1, 9, 100, 4096, 1 << 20):
        yield chance.randbytes(size)
        yield HTTP2 + chance.randbytes(size)


def ports(cluster: Cluster) -> list[tuple[int, str | tuple[str, int]]]:
    """The front door, the control socket, and every other port that a process of the cluster listens on."""
    found: list[tuple[int, str | tuple[str, int]]] = [
        (socket.AF_INET, ("127.0.0.1", cluster.port)),
        (socket.AF_UNIX, str(next(pathlib.Path(cluster.state_dir).rglob("control.sock")))),
    ]
    inodes = set()
    for pid in cluster.processes():
        for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir():
            try:
                target = os.readlink(entry)
            except OSError:
                continue
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
    for line in pathlib.Path("/proc/net/unix").read_text().splitlines()[1:]:
        fields = line.split()
        abstract = len(fields) == 8 and fields[7].startswith("@")
        if abstract and fields[3] == "00010000" and fields[4] == "0001" and fields[6] in inodes:
            found.append((socket.AF_UNIX, "\0" + fields[7][1:]))
    for name in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            port = int(fields[1].rpartition(":")[2], 16)
            if fields[3] == "0A" and fields[9] in inodes and port != cluster.port:
                found.append((socket.AF_INET, ("127.0.0.1", port)))
    return found


def send_garbage(family: int, address: str | tuple[str, int]) -> None:
    for data in garbage():
        with socket.socket(family) as peer:
            peer.settimeout(5)
            peer.connect(address)
            try:
                peer.sendall(data)
                peer.shutdown(socket.SHUT_WR)
                while peer.recv(65536):
                    pass
            except OSError:  # it closed the connection, or does not answer: both are allowed
                pass


def test_hostile_bytes_on_every_port_change_nothing(
    cluster: Cluster, tmp_path: pathlib.Path
) -> None:
    before = cluster.processes()
    listening = ports(cluster)
    assert len(listening) >= 3, listening  # front door, control, the worker's data
    with cluster.left_as_found():
        for family, address in listening:
            send_garbage(family, address)
        assert sorted(cluster.processes()) == sorted(before)
        output = run_script(
            cluster, tmp_path, "print('sum', float(jnp.sum(jax.device_put(np.ones(8)))))"
        )
        assert "sum 8.0" in output, output


def test_a_client_killed_in_mid_upload_leaves_nothing_OB_2(
    cluster: Cluster, tmp_path: pathlib.Path
) -> None:
    script = tmp_path / "upload.py"
    script.write_text(
        textwrap.dedent(
            """
            import jax, numpy as np
            data = np.ones(16 << 20, np.float32)
            print("go", flush=True)
            for _ in range(200):
                kept = [jax.device_put(data, d) for d in jax.devices()]
            """
        )
    )
    with cluster.left_as_found():
        client = start_script(cluster, script)
        assert client.stdout
        for line in client.stdout:
            if line.strip() == "go":
                break
        wait_for("an array of the client", lambda: cluster.status()["arrays"] > 0, 20)
        client.kill()
        client.communicate(timeout=10 * PATIENCE)
        wait_for("no session left", lambda: not cluster.status()["sessions"], ANSWER_S)
        wait_for(
            "no byte left on the devices",
            lambda: all(d["bytes_in_use"] == 0 for d in cluster.workers()[0]["devices"]),
            ANSWER_S + 3,
        )


def test_a_full_disk_only_turns_the_cache_off(
    new_cluster: NewCluster, tmp_path: pathlib.Path
) -> None:
    with full_disk(tmp_path) as full:
        cluster = new_cluster(1, 1, 2)
        cluster.environment["GANGWAY_CACHE_DIR"] = str(full)
        cluster.start()
        with cluster.left_as_found():
            output = run_script(
                cluster,
                tmp_path,
                """
                for n in range(6):
                    print("sum", float(jax.jit(lambda x: (jnp.sin(x) * n).sum())(jnp.zeros(n + 3))))
                """,
            )
        assert output.count("sum 0.0") == 6, output
        assert "No space left" in cluster.logs(), cluster.logs()


def test_calls_after_the_first_make_no_round_trip(cluster: Cluster, tmp_path: pathlib.Path) -> None:
    def frames(calls: int) -> int:
        before = cluster.status()["counters"]["frames_to_clients"]
        run_script(
            cluster,
            tmp_path,
            f"""
            f = jax.jit(lambda x: x + 1)
            x = jax.device_put(np.zeros(8, np.float32))
            for _ in range({calls}):
                x = f(x)
            assert float(x[0]) == {calls}
            """,
        )
        after: int = cluster.status()["counters"]["frames_to_clients"]
        return after - before

    few, many = frames(10), frames(3010)
    assert many - few <= 3000 // 100, (few, many)  # one Progress per 256 calls
