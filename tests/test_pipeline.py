"""The pipeline example: under either schedule, stages on two islands compute what the undivided model
computes, and each schedule has the order that its name states. With stages of a layer each; in the nightly run with
those of the language model, too.
"""

from __future__ import annotations

import ast
import functools
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from case_runs import reference_training
from harness import PATIENCE, ROOT, Cluster

SCRIPT = ROOT / "examples" / "pipeline_lm.py"
SCHEDULES: dict[str, tuple[str, dict[str, int]]] = {
    "gpipe": ("gpipe", {}),
    "1f1b": ("one_forward_one_backward", {}),
    "eager-1f1b": ("one_forward_one_backward", {"per_stage": 2}),
}
STEPS = 6
HOST_DEVICES = "--xla_force_host_platform_device_count=2"
FLAGS = ["--steps", str(STEPS), "--batch", "8", "--seed", "3"]


def functions() -> dict[str, ast.FunctionDef]:
    tree = ast.parse(SCRIPT.read_text())
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


def order_of(schedule: str) -> Callable[[int, int, int], list[tuple[str, int]]]:
    """The schedule's function of the example, loaded without importing JAX."""
    scope: dict[str, Any] = {"FORWARD": "forward", "BACKWARD": "backward", "Order": None}
    name, options = SCHEDULES[schedule]
    exec(ast.unparse(functions()[name]), scope)
    return functools.partial(scope[name], **options)


def test_the_schedule_is_short() -> None:
    parts = [functions()[name] for name in ("gpipe", "one_forward_one_backward", "run")]
    assert sum((part.end_lineno or 0) - part.lineno + 1 for part in parts) < 60


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    ("stages", "microbatches"), [(1, 1), (2, 1), (2, 4), (4, 4), (4, 9), (8, 3)]
)
def test_each_microbatch_goes_forward_then_backward_in_order(
    schedule: str, stages: int, microbatches: int
) -> None:
    for stage in range(stages):
        order = order_of(schedule)(stage, stages, microbatches)
        for direction in ("forward", "backward"):
            assert [m for d, m in order if d == direction] == list(range(microbatches))
        kept = most = 0
        for direction, _ in order:
            kept += 1 if direction == "forward" else -1
            most = max(most, kept)
            assert kept >= 0
        left = stages - stage
        expected = {"gpipe": microbatches, "1f1b": left, "eager-1f1b": 2 * left - 1}
        assert most == min(expected[schedule], microbatches)


SMALL_STAGES = """
import gangway; gangway.connect()
import sys
sys.path.insert(0, sys.argv[1])
import jax, jax.numpy as jnp, numpy as np, pipeline_lm
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

layer = lambda w, x: jnp.tanh(x @ w)
loss = lambda w, x, labels: ((layer(w, x) - labels) ** 2).mean()

class Stage:
    def __init__(self, devices, w, apply):
        self.mesh = Mesh(np.array(devices), ("data",))
        self.w = jax.device_put(w, NamedSharding(self.mesh, P()))
        self.total = jax.device_put(np.zeros_like(w), NamedSharding(self.mesh, P()))
        self.kept = {}
        self.apply = jax.jit(apply)
        def backward(w, total, inputs, gradient):
            y, vjp = jax.vjp(lambda w, x: apply(w, x, *inputs[1:]), w, inputs[0])
            mine, before = vjp(jnp.ones_like(y) if gradient is None else gradient)
            return total + mine, before
        self.add = jax.jit(backward)
    def put(self, x):
        return jax.device_put(x, NamedSharding(self.mesh, P("data")))
    def forward(self, m, *inputs):
        self.kept[m] = inputs
        return self.apply(self.w, *inputs)
    def backward(self, m, gradient):
        self.total, before = self.add(self.w, self.total, self.kept.pop(m), gradient)
        return before

noise = np.random.default_rng(0)
x, labels = (noise.standard_normal((6, 4, 8), np.float32) for _ in range(2))
ws = [noise.standard_normal((8, 8), np.float32) / 3 for _ in range(2)]
found = {}
for name, schedule in pipeline_lm.SCHEDULES.items():
    stages = [Stage(jax.devices()[2 * i : 2 * i + 2], w, f) for i, (w, f) in enumerate(zip(ws, [layer, loss]))]
    tokens, targets = [stages[0].put(each) for each in x], [stages[1].put(each) for each in labels]
    losses = pipeline_lm.run(schedule, stages, tokens, targets)
    found[name] = [np.asarray(each) for each in [*losses, *(stage.total for stage in stages)]]
first, *others = found.values()
assert all(np.array_equal(a, b) for other in others for a, b in zip(first, other, strict=True))
whole = jax.value_and_grad(lambda ws, x, labels: loss(ws[1], layer(ws[0], x), labels))
alone = [whole(ws, *each) for each in zip(x, labels)]
expected = [each for each, _ in alone] + [sum(gradients[i] for _, gradients in alone) for i in range(2)]
for a, b in zip(first, expected, strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
print(len(found), "schedules")
"""


def test_gradients_are_those_of_the_layers_in_one_piece(
    new_cluster: Callable[..., Cluster], tmp_path: pathlib.Path
) -> None:
    cluster = new_cluster(2, 1, 2).start()
    script = tmp_path / "stages.py"
    script.write_text(SMALL_STAGES)
    result = cluster.command(
        *["run", "--port", str(cluster.port), str(script), str(SCRIPT.parent)], timeout_s=60
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"{len(SCHEDULES)} schedules" in result.stdout, result.stdout
    moved = sum(worker["data_bytes"]["from_workers"] for worker in cluster.workers())
    assert moved > 0, "activations and gradients go from worker to worker"


# The compiles take the time, above all those of random numbers.
SMALL_MODEL = """
import functools, sys
sys.path.insert(0, sys.argv.pop(1))
import jax, jax.numpy as jnp, pipeline_lm
lm, random_params = pipeline_lm.lm, pipeline_lm.lm.init_params
lm.Model = functools.partial(lm.Model, layers=2, width=16, heads=2, hidden=32, context=16)
waves = lambda like: jnp.sin(jnp.arange(like.size, dtype=jnp.float32)).reshape(like.shape)
lm.init_params = lambda key, model: jax.tree.map(
    waves, jax.eval_shape(lambda key: random_params(key, model), key)
)
pipeline_lm.main()
"""
PROGRAM_STEPS = 12  # more than are dispatched ahead, so losses are read between the last ones


def test_a_step_as_a_program_is_one_message_and_gives_the_same_losses_bitwise(
    new_cluster: Callable[..., Cluster], tmp_path: pathlib.Path
) -> None:
    cluster = new_cluster(2, 1, 2).start()
    script = tmp_path / "small.py"
    script.write_text(SMALL_MODEL)
    losses = {}
    for option in ("", "--program"):
        out = tmp_path / f"losses{option}"
        result = cluster.command(
            *["run", "--door", "pjrt", "--port", str(cluster.port), str(script)],
            *[str(SCRIPT.parent), "--steps", str(PROGRAM_STEPS), "--batch", "8"],
            *["--losses", str(out), *option.split()],
            timeout_s=60,
        )
        assert result.returncode == 0, result.stdout + result.stderr
        losses[option] = out.read_text()
        # The first step compiles, and the second one is the first that is as the others.
        said = f"{PROGRAM_STEPS - 2} of {PROGRAM_STEPS} steps reached the cluster as one message"
        assert (said in result.stdout) == bool(option), result.stdout
    assert len(set(losses[""].split())) == PROGRAM_STEPS
    assert losses["--program"] == losses[""]


def test_without_gangway_it_says_how_to_run_programs(tmp_path: pathlib.Path) -> None:
    script = tmp_path / "without.py"
    script.write_text(f"import sys\nsys.modules['gangway'] = None\n{SMALL_MODEL}")
    result = subprocess.run(
        [sys.executable, str(script), str(SCRIPT.parent), "--program"],
        env={**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": HOST_DEVICES},
        capture_output=True,
        text=True,
        timeout=60 * PATIENCE,
    )
    assert result.returncode != 0
    assert "gangway run examples/pipeline_lm.py --program" in result.stderr, result.stderr


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_losses_are_those_of_the_model_in_one_piece(
    new_cluster: Callable[..., Cluster], tmp_path: pathlib.Path
) -> None:
    cluster = new_cluster(2, 1, 2).start()
    losses = {}
    for schedule in ("gpipe", "1f1b"):
        out = tmp_path / schedule
        result = cluster.command(
            *["run", "--port", str(cluster.port), str(SCRIPT), *FLAGS],
            *["--schedule", schedule, "--losses", str(out)],
            timeout_s=240,
        )
        assert result.returncode == 0, result.stdout + result.stderr
        assert "2 stages of 2 layers" in result.stdout, result.stdout
        losses[schedule] = [float.fromhex(loss) for loss in out.read_text().split()]
    moved = sum(worker["data_bytes"]["from_workers"] for worker in cluster.workers())
    assert moved > 0, "activations go from worker to worker"
    alone = reference_training([*FLAGS, "--sample", "0"], 2, tmp_path)
    expected = [float.fromhex(loss) for loss in alone.losses]
    assert len(expected) == STEPS and expected[-1] < expected[0] - 0.5
    assert losses["gpipe"] == losses["1f1b"], "the order of the calls changes nothing (DF-3)"
    assert losses["1f1b"] == pytest.approx(expected, abs=1e-4)
