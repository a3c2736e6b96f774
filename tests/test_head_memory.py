"""The memory of the head: what exceeds its limit is refused with the sizes, and nothing else; what it held for a session
is given back.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from faultlib import Console
from harness import DOORS, HEAD_HOLDS, Cluster, wait_for
from test_constants import MIB, resident_bytes

pytestmark = pytest.mark.faults
NewCluster = Callable[..., Cluster]

INSIDE = {"GANGWAY_CONSTANT_BYTES": str(512 * MIB)}  # arrays stay in their programs
REFUSED_CALL = "call = jax.ffi.ffi_call('no_such_target', jax.ShapeDtypeStruct((), np.float32))"


def sum_with_constant(client: Console, mib: int, number: int) -> dict[str, object]:
    client.do(f"w = np.arange({mib} << 18, dtype=np.float32) + {number}")
    return client.ask("result = float(jax.jit(lambda i: jnp.asarray(w)[i] + 1)(3))", 120)


def wait_until_given_back(cluster: Cluster, *counters: str) -> None:
    """The proxy's client keeps a result's buffer in the head until it says, after its script has the bytes, that it may
    be deleted; uploads are given back when the worker has them.
    """
    wait_for(
        f"{counters} given back",
        lambda: not any(cluster.status()["counters"][name] for name in counters),
        10,
    )


@pytest.mark.parametrize("door", ["pjrt", "ifrt"])  # a program comes in pieces, and in one message
def test_a_program_over_the_limit_is_refused_with_the_sizes(
    door: str, new_cluster: NewCluster
) -> None:
    cluster = new_cluster(1, 1, 1, "--head-memory", "48MiB").start()
    head = cluster.head_pid
    assert cluster.status()["counters"]["head_memory_limit_bytes"] == 48 * MIB
    with Console(cluster, door=door, environment=INSIDE) as client, Console(cluster) as other:
        client.do("x = jax.device_put(np.float32(1))")
        for number in range(2):
            error = str(sum_with_constant(client, 64, number)["error"])
            assert "RESOURCE_EXHAUSTED" in error and str(48 * MIB) in error, error
            assert "--head-memory" in error, error
            assert client.do("result = float(x + 1)") == 2
            assert other.do("result = float(jnp.ones(()) + 1)") == 2
        assert sum_with_constant(client, 8, 1)["ok"] == 5
        wait_until_given_back(cluster, *HEAD_HOLDS[:3], *HEAD_HOLDS[-2:])
    assert cluster.head_pid == head


def test_an_upload_over_the_limit_is_refused_with_the_sizes(new_cluster: NewCluster) -> None:
    cluster = new_cluster(1, 1, 1, "--head-memory", "48MiB").start()
    with Console(cluster) as client:
        error = client.ask("jax.device_put(np.ones(16 << 20, np.float32)).block_until_ready()")
        assert "RESOURCE_EXHAUSTED" in error["error"] and str(64 * MIB) in error["error"], error
        assert (
            client.do("result = float(jax.device_put(np.ones(1 << 20, np.float32)).sum())") == MIB
        )
        wait_until_given_back(cluster, "head_host_buffers_bytes")


def test_status_names_the_head_and_what_it_holds(new_cluster: NewCluster) -> None:
    cluster = new_cluster(1, 1, 1, "--head-memory", "1GiB").start()
    counters = cluster.status()["counters"]
    assert counters["head_memory_limit_bytes"] == 1 << 30, counters
    assert 0 < counters["head_live_bytes"] < counters["head_resident_bytes"], counters
    text = cluster.command("status", "--port", str(cluster.port)).stdout
    assert "holds 0 B of 1.0 GiB for clients" in text, text


@pytest.mark.timeout(180)
@pytest.mark.parametrize("door", DOORS)
def test_refused_compiles_leave_nothing_in_the_head(door: str, new_cluster: NewCluster) -> None:
    cluster = new_cluster(1, 1, 1).start()
    with cluster.left_as_found():
        before = resident_bytes(cluster.head_pid)
        for number in range(3):
            with Console(cluster, door=door, environment=INSIDE) as client:
                client.do(REFUSED_CALL)
                client.do(f"w = np.arange(64 << 18, dtype=np.float32) + {number}")
                answer = client.ask("jax.jit(lambda i: call(jnp.asarray(w)[i]))(3)", 120)
                assert "no_such_target" in answer["error"], answer
    wait_for(
        "the head's memory given back",
        lambda: resident_bytes(cluster.head_pid) < before + 48 * MIB,
        60,
    )
