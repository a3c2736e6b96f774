"""Compile options of a hostile client, each refused by name or harmless, while another session uses the same devices.
One cluster serves all cases; the client is JAX, through both doors and with XLA_FLAGS, or sends bytes of its own.
"""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import subprocess
import textwrap
from collections.abc import Iterator
from typing import Any

import pytest
from harness import NEW_PYTHON, PATIENCE, Client, Cluster, output_of_client
from native_programs import native

ANSWER_S = 1.0  # of the other session's `x + 1`, as long as nothing else slows the machine down
SLOWER_MAX = 6  # of a compile, before and after
CONNECT = "import gangway; gangway.connect()\nimport json, sys, time, jax, jax.numpy as jnp, numpy as np\n"
PATH = "PATH"  # stands for a path at which no file may appear

REFUSED: dict[str, Any] = {
    "xla_dump_to": PATH,
    "xla_dump_hlo_as_text": True,
    "xla_dump_hlo_as_proto": True,
    "xla_dump_hlo_pass_re": ".*",
    "xla_dump_hlo_module_re": ".*",
    "xla_dump_max_hlo_modules": 5,
    "xla_dump_hlo_snapshots": True,
    "xla_dump_emitter_re": ".*",
    "xla_candidate_configs_file": PATH,
    "xla_backend_extra_options": "-opt-bisect-limit=1",
    "xla_flags_reset": True,
    "xla_hlo_profile": True,
    "xla_cpu_enable_xprof_traceme": True,
    "xla_unsupported_crash_on_hlo_pass_noop_change": True,
    "xla_unsupported_crash_on_hlo_pass_silent_hlo_change": True,
    "xla_hlo_pass_fix_detect_cycles": "true",
    "xla_disable_all_hlo_passes": True,
    "xla_enable_hlo_passes_only": "cse",
    "xla_run_hlo_passes_starting_from": "cse",
    "xla_embed_ir_in_executable": True,
    "xla_early_exit_with_layouts": True,
    "xla_test_all_input_layouts": True,
    "xla_cpu_mock_custom_calls": True,
    "xla_cpu_use_onednn": True,
    "xla_cpu_use_acl": True,
    "xla_partitioning_algorithm": "PARTITIONING_ALGORITHM_EXP0",
    "xla_cpu_experimental_xnn_fusion_type": "LIBRARY_FUSION_TYPE_DOT",
    "xla_force_config": "x",
    "xla_keep_shardings_after_spmd": True,
    "xla_backend_optimization_level": 9,
    "xla_cpu_parallel_codegen_split_count": 100_000,
    "xla_cpu_prefer_vector_width": -1,
    "xla_cpu_max_isa": "../../x",
    "xla_disable_hlo_passes": "copy-insertion",
    "xla_no_such_option": True,
}
# Scripts set them for good reasons, or for other machines.
HARMLESS: dict[str, Any] = {
    "xla_cpu_enable_fast_math": True,
    "xla_backend_optimization_level": "0",
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_max_isa": "SSE4_2",
    "xla_cpu_parallel_codegen_split_count": 1,
    "xla_cpu_multi_thread_eigen": "false",
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_CONCURRENCY_OPTIMIZED",
    "xla_allow_excess_precision": False,
    "xla_disable_hlo_passes": "fusion,algsimp",
    "xla_force_host_platform_device_count": 64,
    "xla_cpu_collective_call_terminate_timeout_seconds": 1,
    "xla_gpu_cuda_data_dir": PATH,
    "xla_gpu_dump_autotune_results_to": PATH,
    "xla_gpu_enable_triton_gemm": False,
}

# Runs until a line comes, and prints how long the slowest answer took.
VICTIM = CONNECT + textwrap.dedent(
    """
    import select
    arrays = [jax.device_put(np.arange(4096, dtype=np.float32) * (i + 1), d) for i, d in enumerate(jax.devices())]
    kept = [np.asarray(x) for x in arrays]
    add = jax.jit(lambda x: x + 1)
    [add(x).block_until_ready() for x in arrays]
    print("ready", flush=True)
    slowest = runs = 0
    while not select.select([sys.stdin], [], [], 0.02)[0]:
        for x, k in zip(arrays, kept):
            start = time.monotonic()
            y = np.asarray(add(x))
            slowest = max(slowest, time.monotonic() - start)
            assert (y == k + 1).all() and (np.asarray(x) == k).all()
            runs += 1
    print(json.dumps({"slowest": slowest, "runs": runs}), flush=True)
    """
)
TRY = CONNECT + textwrap.dedent(
    """
    x = jnp.arange(64.0) + 1
    for name, value in CASES.items():
        try:
            run = jax.jit(lambda x: jnp.sin(x) @ x).lower(x).compile(compiler_options={name: value})
            print(json.dumps({"name": name, "ok": float(run(x))}))
        except Exception as error:
            print(json.dumps({"name": name, "error": str(error)}))
    """
)
COMPILE = CONNECT + textwrap.dedent(
    """
    def layers(x):
        for i in range(12):
            x = jnp.tanh(x @ x) + jnp.sort(x, axis=i % 2) * SALT
        return x.sum()
    x = jnp.ones((32, 32)) / 32
    lowered = jax.jit(layers).lower(x)
    start = time.monotonic()
    compiled = lowered.compile()
    took = time.monotonic() - start
    start = time.monotonic()
    for _ in range(20):
        compiled(x).block_until_ready()
    print(json.dumps({"compile": took, "run": time.monotonic() - start}))
    """
)


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, pathlib.Path]]:
    """A cluster with a cache of its own, and a path for files that a client asks for."""
    folder = tmp_path_factory.mktemp("options")
    cluster = Cluster(1, 1, 2)
    cluster.environment["GANGWAY_CACHE_DIR"] = str(folder / "cache")
    cluster.start()
    yield cluster, folder / "chosen"
    cluster.stop()


def entries(path: pathlib.Path) -> dict[str, str]:
    """The files of the cluster's cache."""
    cache = path.parent / "cache"
    return {
        str(f.relative_to(cache)): hashlib.sha256(f.read_bytes()).hexdigest()
        for f in cache.rglob("*")
        if f.is_file()
    }


class Victim:
    """A session that uses all devices for as long as the block runs."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.runs = 0

    def __enter__(self) -> Victim:
        self._client = Client(VICTIM, self._cluster.port, "pjrt")
        assert self._client.stdout.readline() == "ready\n"
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self._client.stdin.write("\n")
            self._client.stdin.flush()
            answer = self._client.stdout.readline()
        finally:
            self._client.close()
        if error[0] is None:
            told = json.loads(answer)
            self.runs = told["runs"]
            assert told["slowest"] < ANSWER_S * PATIENCE and self.runs >= 4, told


def tried(
    cluster: Cluster, cases: dict[str, Any], path: pathlib.Path, door: str
) -> dict[str, dict[str, Any]]:
    chosen = {name: str(path) if value == PATH else value for name, value in cases.items()}
    output = output_of_client(f"CASES = {chosen!r}\n{TRY}", cluster.port, door)
    return {told["name"]: told for told in map(json.loads, output.splitlines())}


def measured(cluster: Cluster, salt: float) -> dict[str, float]:
    told: dict[str, float] = json.loads(
        output_of_client(COMPILE.replace("SALT", repr(salt)), cluster.port, "pjrt")
    )
    return told


@pytest.mark.timeout(240)
def test_options_by_name_are_refused_or_harmless(attacked: tuple[Cluster, pathlib.Path]) -> None:
    cluster, path = attacked
    before = measured(cluster, 0.5)
    with Victim(cluster):
        for door in ("pjrt", "ifrt"):
            tried(cluster, {}, path, door)  # what a session compiles by itself
        kept = entries(path)
        assert kept
        for door in ("pjrt", "ifrt"):
            for name, told in tried(cluster, REFUSED, path, door).items():
                assert f"the compile option '{name}' is refused: " in told.get("error", ""), told
        assert entries(path) == kept, "a refused option makes no entry, and touches none"
        for door in ("pjrt", "ifrt"):
            told = tried(cluster, HARMLESS, path, door)
            assert {name: "ok" in one for name, one in told.items()} == dict.fromkeys(
                HARMLESS, True
            ), told
            values = [one["ok"] for one in told.values()]
            assert max(values) - min(values) < 1e-2, told
    assert not path.exists()
    changed = entries(path)
    assert {name: changed[name] for name in kept} == kept, "the entries of others stay"
    after = measured(cluster, 0.75)
    for what in before:
        assert after[what] < SLOWER_MAX * before[what] + 0.1, (before, after)


@pytest.mark.timeout(120)
def test_flags_of_a_script_are_options_of_its_programs(
    attacked: tuple[Cluster, pathlib.Path], tmp_path: pathlib.Path
) -> None:
    cluster, path = attacked
    script = tmp_path / "script.py"
    script.write_text(
        "import jax\nprint('sum', float(jax.jit(lambda x: x.sum())(jax.numpy.ones(7))))"
    )

    def run(flags: str, door: str) -> subprocess.CompletedProcess[str]:
        return cluster.command(
            *("run", "--port", str(cluster.port), "--door", door, str(script)),
            env={**NEW_PYTHON, "XLA_FLAGS": flags},
            timeout_s=60,
        )

    with Victim(cluster):
        for door in ("pjrt", "ifrt"):
            refused = run(f"--xla_dump_to={path} --xla_dump_hlo_as_text", door)
            assert refused.returncode != 0, refused.stdout
            assert "the compile option 'xla_dump_" in refused.stderr, refused.stderr
            assert "compile().as_text()" in refused.stderr, refused.stderr
            harmless = run(
                "--xla_force_host_platform_device_count=64 --xla_gpu_triton_gemm_any=false "
                f"--xla_cpu_collective_call_terminate_timeout_seconds=1 --xla_gpu_cuda_data_dir={path}",
                door,
            )
            assert "sum 7.0" in harmless.stdout, harmless.stderr
    assert not path.exists()


@pytest.mark.timeout(120)
def test_bytes_of_a_native_client_are_refused_or_harmless(
    attacked: tuple[Cluster, pathlib.Path],
) -> None:
    cluster, path = attacked
    program = native("options_e2e_test")
    with Victim(cluster):
        done = subprocess.run(
            [str(program)],
            env={
                **os.environ,
                "GANGWAY_TEST_CONTROL": cluster.control,
                "GANGWAY_TEST_FOLDER": str(cluster.folder),
                "GANGWAY_TEST_PATH": str(path),
            },
            capture_output=True,
            text=True,
            timeout=60 * PATIENCE,
        )
    assert done.returncode == 0 and "[  PASSED  ] 1 test" in done.stdout, done.stdout
    assert not path.exists()
