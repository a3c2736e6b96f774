"""The examples whose meshes work at the same time: reinforcement learning with a trainer and rollouts, and serving with
prefill and decoding apart. Their results are those of plain JAX, whatever the order in which the meshes do their parts,
and the arrays go from worker to worker. Outside the nightly run, serving alone.
"""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Callable
from typing import Any

import pytest
from case_runs import reference_script
from harness import DOORS, NIGHTLY, ROOT, Cluster, wait_for

EXAMPLES = ROOT / "examples"
LEARNING, SERVING = EXAMPLES / "rl_async.py", EXAMPLES / "serve_pd.py"
SHARED = [EXAMPLES / "train_lm.py"]  # what both take from another example
TEXT = sorted(pathlib.Path(os.__file__).parent.glob("*.py"))  # the prompts

STEPS = 40
LEARN = ["--steps", str(STEPS), "--length", "3", "--width", "32", "--layers", "1", "--rate", "6e-3"]
WEIGHTS = 4 * 30_000  # bytes, or more
SLOTS = 4
SERVE = [
    *["--requests", "14", "--every", "1", "--slots", str(SLOTS), "--prompt", "24"],
    *["--tokens", "12", "--width", "32", "--layers", "2"],
]
KEYS_AND_VALUES = 2 * 2 * 24 * 32 * 4  # bytes of a prompt's


def run(
    cluster: Cluster, door: str, script: pathlib.Path, flags: list[str], out: pathlib.Path
) -> Any:
    """What the script wrote, as JSON."""
    result = cluster.command(
        *["run", "--port", str(cluster.port), "--door", door],
        *[str(script), *flags, "--out", str(out)],
        timeout_s=180,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return json.loads(out.read_text())


def moved(cluster: Cluster) -> dict[str, int]:
    """Bytes of arrays by path, over all workers."""
    counts = [worker["data_bytes"] for worker in cluster.workers()]
    return {path: sum(each[path] for each in counts) for path in counts[0]}


def moved_since(cluster: Cluster, before: dict[str, int], least: dict[str, int]) -> dict[str, int]:
    """Waits until the workers have reported `least`, with their next heartbeats."""

    def since() -> dict[str, int]:
        return {path: count - before[path] for path, count in moved(cluster).items()}

    wait_for(f"{least}", lambda: all(since()[path] >= count for path, count in least.items()), 5)
    return since()


@pytest.mark.nightly
@pytest.mark.timeout(400)
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("staleness", [1, 0])
def test_rewards_are_those_of_plain_jax_and_the_script_moves_no_arrays(
    new_cluster: Callable[..., Cluster], tmp_path: pathlib.Path, staleness: int, door: str
) -> None:
    flags = [*LEARN, "--staleness", str(staleness)]
    cluster = new_cluster(3, 1, 2).start()
    before = moved(cluster)
    steps = run(cluster, door, LEARNING, flags, tmp_path / "steps")
    # Three keys go in, two numbers per step come out, and the weights go to both rollouts.
    read, sent = 8 * STEPS, 2 * STEPS * WEIGHTS
    counts = moved_since(cluster, before, {"to_clients": read, "from_workers": sent})
    assert counts["to_clients"] <= read + 1024 and counts["from_clients"] <= 1024, counts
    text, _ = reference_script(LEARNING, flags, 6, tmp_path, file_flag="--out", sources=SHARED)
    expected = json.loads(text)
    for name in ("reward", "loss"):
        assert [step[name] for step in steps] == [step[name] for step in expected], name
    assert steps[0]["reward"] < 0.3 and steps[-1]["reward"] > 0.7


@pytest.mark.timeout(400)
@pytest.mark.parametrize("door", DOORS)
def test_answers_are_those_of_each_request_alone(
    new_cluster: Callable[..., Cluster], tmp_path: pathlib.Path, door: str
) -> None:
    text, _ = reference_script(
        SERVING, [*SERVE, "--alone"], 4, tmp_path, file_flag="--out", sources=[*SHARED, *TEXT]
    )
    expected = json.loads(text)["answers"]
    assert len(expected) == 14 and len({tuple(answer) for answer in expected.values()}) == 14
    cluster = new_cluster(2, 1, 2).start()
    variants = [[], ["--aggregated", "--ahead", "0"]] if NIGHTLY else [[]]
    for flags in variants:
        before = moved(cluster)
        served = run(cluster, door, SERVING, [*SERVE, *flags], tmp_path / "served")
        assert served["answers"] == expected, flags
        read = len(served["tick_s"]) * 2 * SLOTS * 4
        sent = 0 if flags else len(expected) * KEYS_AND_VALUES
        counts = moved_since(cluster, before, {"to_clients": read, "from_workers": sent})
        # The script runs a second time, briefly, in order to compile.
        assert counts["to_clients"] <= 2 * read + 1024 and counts["from_clients"] <= 8192, counts
