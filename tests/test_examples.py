"""Examples from the source packages of flax, optax and equinox, unmodified: on a cluster they print the same text, and
leave the same bits in their variables, as with JAX on the same plugin in-process. Orbax is what two of flax's examples
save and load with; its own source package has no example. And scripts of ours that use libraries for what only a
runtime under JAX has to get right: looking devices up by their platform, custom_partitioning, results from the host, a
mesh over several workers. The packages are downloaded.
"""

from __future__ import annotations

import pathlib
import pickle
import re
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from compare import assert_bitwise_equal, assert_close
from harness import PATIENCE, ROOT, Cluster, client_environment

pytestmark = pytest.mark.nightly
TOYS = "examples/nnx_toy_examples"
# Package of tools/versions/sources.txt, and the file in its sources (run_example.py).
EXAMPLES = [
    ("flax", f"{TOYS}/02_lifted_transforms.py"),
    ("flax", f"{TOYS}/03_train_state.py"),
    ("flax", f"{TOYS}/04_data_parallel_with_jit.py"),
    ("flax", f"{TOYS}/06_scan_over_layers.py"),
    ("flax", f"{TOYS}/07_array_leaves.py"),
    ("flax", f"{TOYS}/08_save_load_checkpoints.py"),
    ("flax", f"{TOYS}/10_fsdp_and_optimizer.py"),
    ("flax", "docs/guides/flax_fundamentals/flax_basics.ipynb"),
    ("flax", "docs_nnx/guides/checkpointing.ipynb"),
    ("optax", "doctest:optax/_src/alias.py"),  # a training loop with each optimizer
    ("equinox", "README.md"),
]
# Of tests/libraries, and the backend to compare with. jaxlib's own CPU, whose bits differ, is for what the same plugin
# in-process lacks: devices that are found as "cpu", LAPACK, and custom_partitioning.
LIBRARIES = {
    "drjax_rounds": "reference",
    "keras_distribution": "cpu",
    "netket_sampling": "cpu",
    "partitioned_calls": "cpu",
}


@pytest.fixture(scope="module")
def python() -> str:
    """The Python of a venv with the packages."""
    return tool("venv.sh", "examples")


def tool(name: str, argument: str) -> str:
    made = subprocess.run(
        [str(ROOT / "tools" / name), argument],
        capture_output=True,
        text=True,
        timeout=600 * PATIENCE,
    )
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()


def run(python: str, backend: str, example: str, port: int, folder: pathlib.Path) -> Any:
    """What the example printed and the numbers in its variables."""
    out = folder / f"{backend}.pickle"
    ended = subprocess.run(
        [
            *[python, str(ROOT / "tests" / "run_example.py"), "--backend", backend],
            *["--out", str(out), example],
        ],
        env={**client_environment(port), "MPLBACKEND": "Agg", "KERAS_HOME": str(folder)},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=400 * PATIENCE,
    )
    assert ended.returncode == 0, f"on {backend}:\n{ended.stdout[-3000:]}{ended.stderr[-6000:]}"
    return pickle.loads(out.read_bytes())


def without_addresses(text: str) -> str:
    """Without those of objects in memory."""
    return re.sub(r"\b0x[0-9a-f]+", "0x", text)


@pytest.mark.timeout(1000)
@pytest.mark.parametrize(("package", "example"), EXAMPLES)
def test_example(
    cluster: Cluster, python: str, tmp_path: pathlib.Path, package: str, example: str
) -> None:
    kind, colon, file = example.rpartition(":")
    path = f"{kind}{colon}{tool('source.sh', package)}/{file}"
    theirs = run(python, "reference", path, cluster.port, tmp_path)
    ours = run(python, "gangway", path, cluster.port, tmp_path)
    assert without_addresses(ours["printed"]) == without_addresses(theirs["printed"])
    assert theirs["values"], "nothing to compare"
    assert_bitwise_equal(ours["values"], theirs["values"])


@pytest.fixture(scope="module")
def island() -> Iterator[Cluster]:
    """Four workers of two devices."""
    running = Cluster(islands=1, workers=4, devices=2).start()
    yield running
    running.stop()


@pytest.mark.timeout(1000)
@pytest.mark.parametrize("script", LIBRARIES)
def test_library(island: Cluster, tmp_path: pathlib.Path, script: str) -> None:
    path = str(ROOT / "tests" / "libraries" / f"{script}.py")
    python, backend = tool("venv.sh", "libraries"), LIBRARIES[script]
    theirs = run(python, backend, path, island.port, tmp_path)["values"]
    ours = run(python, "gangway-pjrt", path, island.port, tmp_path)["values"]
    assert theirs, "nothing to compare"
    (assert_close if backend == "cpu" else assert_bitwise_equal)(ours, theirs)
