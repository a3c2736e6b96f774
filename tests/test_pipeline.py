"""The pipeline example: under either schedule, stages on two islands compute what the undivided model
computes, and each schedule has the order that its name states.
"""

from __future__ import annotations

import ast
import functools
import pathlib
from collections.abc import Callable
from typing import Any

import pytest
from case_runs import reference_training
from harness import ROOT, Cluster

SCRIPT = ROOT / "examples" / "pipeline_lm.py"
SCHEDULES: dict[str, tuple[str, dict[str, int]]] = {
    "gpipe": ("gpipe", {}),
    "1f1b": ("one_forward_one_backward", {}),
    "eager-1f1b": ("one_forward_one_backward", {"per_stage": 2}),
}
STEPS = 6
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
