"""What JAX asks of a PJRT plugin beside running programs, and the limits of the IFRT proxy's client that the plugin does
not have: attributes, memory statistics, serialized executables, layouts, profiles.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from faultlib import Console
from harness import Cluster

BUDGET = 1 << 30


@pytest.fixture
def console(cluster: Cluster) -> Iterator[Console]:
    with Console(cluster, door="pjrt") as opened:
        yield opened


def test_the_workers_stablehlo_versions_are_jaxs(console: Console) -> None:
    console.do("from jax._src import xla_bridge")
    console.do("client = xla_bridge.get_backend('gangway')")
    version = console.do("result = list(client.stablehlo_current_version)")
    assert len(version) == 3 and version[0] >= 1, version
    assert console.do("result = list(client.stablehlo_minimum_version)") <= version


def test_memory_stats_are_those_of_the_ledger() -> None:
    cluster = Cluster(1, 1, 2, "--memory", "1GB").start()
    try:
        with Console(cluster, door="pjrt") as client:
            client.do("one, other = jax.devices()")
            before = client.do("result = one.memory_stats()")
            client.do("x = jax.device_put(np.ones(1 << 20, np.float32), one).block_until_ready()")
            held = client.do("result = one.memory_stats()")
            assert held["bytes_in_use"] - before["bytes_in_use"] == 4 << 20
            assert held["peak_bytes_in_use"] >= held["bytes_in_use"]
            assert held["bytes_limit"] in (10**9, BUDGET)
            assert client.do("result = other.memory_stats()")["bytes_in_use"] == 0
            client.do("del x")
            client.do("jax.device_put(np.ones(1), one).block_until_ready()")
            after = client.do("result = one.memory_stats()")
            assert after["bytes_in_use"] < 4 << 20
            assert after["peak_bytes_in_use"] >= 4 << 20
            # Many at once share an answer, so that none is left without one.
            client.do("from concurrent.futures import ThreadPoolExecutor")
            client.do(
                "result = len(list(ThreadPoolExecutor(32).map(lambda _: one.memory_stats(), range(200))))"
            )
    finally:
        cluster.stop()
