"""Clients with another jaxlib than the repository's, each in its own venv, on one cluster: CORE, compared with the same
jaxlib's own CPU backend, and what the package does beyond CORE. Versions that need a newer Python run in a bare Debian
13. Outside the nightly run, the newest version alone, and of CORE some cases through the IFRT proxy, which its own jaxlib
speaks: what it asks of the plugin is beyond CORE.
"""

from __future__ import annotations

import functools
import os
import pathlib
import subprocess
from collections.abc import Callable

import pytest
from case_runs import Outcome, run_cases
from compare import assert_close
from harness import NIGHTLY, PATIENCE, ROOT, Cluster, client_environment
from test_jax import CORE

Outcomes = dict[str, Outcome]
SUITES = {"0.12": "trixie"} | ({"0.8": "", "0.9": ""} if NIGHTLY else {})
# jaxlib's client of the IFRT door writes programs which are at most 12 weeks older than itself.
RUNS = [(version, backend) for version in SUITES for backend in ("gangway", "gangway-pjrt")]
CASES = CORE
if not NIGHTLY:
    RUNS = [(version, "gangway") for version in SUITES]
    CASES = ["arrays.case_put_sharded", "compute.case_training", "sharded.case_psum"]

# What the package does for the plugin by JAX's private functions, and what JAX asks of a plugin beyond CORE.
BEYOND = """
import gangway; gangway.connect(door="pjrt")
import os, tempfile, jax, numpy as np
import jax.numpy as jnp
from jax.experimental import io_callback
from jax.experimental.layout import Format, Layout
from jax.experimental.serialize_executable import deserialize_and_load, serialize
from jax.sharding import NamedSharding, PartitionSpec as P

mesh = jax.make_mesh((8,), ("d",))
device = NamedSharding(mesh, P("d"), memory_kind="device")
host = NamedSharding(mesh, P("d"), memory_kind="pinned_host")
x = jax.device_put(np.arange(16.0, dtype=np.float32), device)
one = jnp.arange(3.0)
seen = []
twice = lambda a: np.asarray(a) * 2

# Host callbacks: of sharded and of manual programs, ordered, in a scan, on the local CPU; and what one raises.
assert jax.jit(lambda x: jax.pure_callback(twice, x, x) + 1)(x).tolist() == [2 * i + 1 for i in range(16)]
total = lambda x: jax.lax.psum(jax.pure_callback(twice, x, x), "d")
manual = jax.jit(jax.shard_map(total, mesh=mesh, in_specs=P("d"), out_specs=P()))
assert manual(x).tolist() == [112, 128]
tell = lambda i: io_callback(lambda a: seen.append(int(a)), None, i, ordered=True)
jax.jit(lambda i: (tell(i), tell(i + 1), i)[-1])(5)
say = lambda a: jax.debug.callback(lambda v: seen.append(float(v)), a, ordered=True)
jax.jit(lambda x: jax.lax.scan(lambda c, a: (say(a), (c + a, a))[1], 0.0, x))(one)
jax.effects_barrier()
assert seen == [5, 6, 0, 1, 2], seen
jax.jit(lambda x: jax.debug.print("x is {}", x))(one)
jax.effects_barrier()
local = jax.device_put(one, jax.devices("host")[0])
assert jax.jit(lambda x: jax.pure_callback(twice, x, x))(local).tolist() == [0, 2, 4]
def fail(a): raise ValueError("not today")
try: jax.jit(lambda x: jax.pure_callback(fail, x, x))(one).block_until_ready()
except jax.errors.JaxRuntimeError as error: assert "ValueError: not today" in str(error)
else: raise AssertionError("no error")

# Memory kinds of results, and inside of programs.
there = jax.jit(lambda x: x + 1, out_shardings=host)(x)
assert there.sharding.memory_kind == "pinned_host" and there.tolist()[15] == 16
step = lambda c, _: (jax.device_put(jax.device_put(c, host), device) + 1, None)
assert jax.jit(lambda c: jax.lax.scan(step, c, None, length=3)[0])(x).tolist()[15] == 18

assert jax.devices()[0].memory_stats()["bytes_limit"] > 0
compiled = jax.jit(lambda x: x * 3).lower(one).compile()
assert compiled.cost_analysis()["flops"] > 0
again = deserialize_and_load(*serialize(compiled), execution_devices=jax.devices()[:1])
assert again(one).tolist() == [0, 3, 6]
assert np.asarray(jax.device_put(np.arange(6)[::-1])).tolist() == [5, 4, 3, 2, 1, 0]
assert np.from_dlpack(jnp.arange(3) + 1).tolist() == [1, 2, 3]
columns = Format(Layout((1, 0)), jax.sharding.SingleDeviceSharding(jax.devices()[0]))
labelled = jax.jit(lambda x: x.T, in_shardings=columns, out_shardings=columns)(np.ones((2, 3), np.float32))
assert labelled.format.layout.major_to_minor == (1, 0) and labelled.sum() == 6 and labelled[2:].shape == (1, 2)
assert (jax.dlpack.from_dlpack(np.arange(3)) + one).devices() == one.devices()
assert round(float(jnp.linalg.det(2 * jnp.eye(3)))) == 8
large = np.arange(1 << 19, dtype=np.float32)
take = jax.jit(lambda i: jnp.asarray(large)[i])
assert take(7) == 7
hidden = len(take.lower(7).as_text()) < 10_000  # older ones upload such an argument for every call
assert hidden == (jax.__version_info__ >= (0, 10))
with tempfile.TemporaryDirectory() as folder:
    with jax.profiler.trace(folder): jax.jit(lambda x: x * 5)(x).block_until_ready()
    assert any(name.endswith(".xplane.pb") for _, _, names in os.walk(folder) for name in names)
with tempfile.TemporaryDirectory() as folder:
    jax.config.update("jax_compilation_cache_dir", folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.jit(lambda x: x * 7 + 3)(one).block_until_ready()
    assert os.listdir(folder)
print("done")
"""


class Jax:
    """A version of JAX, which its first use installs."""

    def __init__(self, version: str, cluster: Cluster, folder: pathlib.Path) -> None:
        suite = SUITES[version]
        if suite and os.geteuid() != 0:
            pytest.skip("a bare Debian is made by root only")
        made = subprocess.run(
            [str(ROOT / "tools" / "venv.sh"), f"jax-{version}", *filter(None, [suite])],
            capture_output=True,
            text=True,
            timeout=900,
        )
        assert made.returncode == 0, made.stderr
        python = pathlib.Path(made.stdout.strip())
        self.launcher, self.environment = [str(python)], dict[str, str]()
        if suite:
            places = [ROOT, python.parents[1], folder, cluster.state_dir]
            self.launcher = [str(ROOT / "tools" / "debian_root.sh"), suite, *self.launcher]
            self.environment["GANGWAY_ROOT_BINDS"] = ":".join(map(str, places))


@pytest.fixture(scope="module")
def outcomes(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, str], Outcomes]:
    """Outcomes of CORE with a version of JAX on a backend; the first request runs all in one process."""

    @functools.cache
    def run(version: str, backend: str) -> Outcomes:
        folder = tmp_path_factory.mktemp("cases")
        jax = Jax(version, cluster, folder)
        options = {"env": jax.environment, "launcher": jax.launcher}
        return run_cases(backend, CASES, folder, port=cluster.port, **options)  # type: ignore[arg-type]

    return run


# The first test of a version makes its venv, and this one runs all its cases.
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("version", "backend"), RUNS)
def test_core(
    version: str, backend: str, case: str, outcomes: Callable[[str, str], Outcomes]
) -> None:
    ours, theirs = outcomes(version, backend)[case], outcomes(version, "cpu")[case]
    for name, found in {"Gangway": ours, "jaxlib's CPU": theirs}.items():
        assert not found.error, f"on {name}, jax {version}:\n{found.error}"
    assert_close(ours.value, theirs.value)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("version", SUITES)
def test_beyond_core(version: str, cluster: Cluster, tmp_path: pathlib.Path) -> None:
    jax = Jax(version, cluster, tmp_path)
    (tmp_path / "script.py").write_text(BEYOND)
    ran = subprocess.run(
        [*jax.launcher, str(tmp_path / "script.py")],
        env={**client_environment(cluster.port), **jax.environment},
        capture_output=True,
        text=True,
        timeout=120 * PATIENCE,
    )
    assert ran.returncode == 0 and ran.stdout == "x is [0. 1. 2.]\ndone\n", ran.stdout + ran.stderr
