"""The training example of the demo: its losses through Gangway equal those of the plugin alone."""

from __future__ import annotations

import pathlib

import pytest
from case_runs import DEVICES, reference_training
from harness import ROOT, Cluster

STEPS = 12
FLAGS = ["--steps", str(STEPS), "--batch", "4", "--seed", "3", "--sample", "8"]


@pytest.mark.timeout(400)
def test_losses_are_bitwise_those_of_the_plugin_alone(
    cluster: Cluster, tmp_path: pathlib.Path
) -> None:
    script = ROOT / "examples" / "train_lm.py"
    ours, plot = tmp_path / "ours", tmp_path / "loss.png"
    through = cluster.command(
        *["run", "--port", str(cluster.port), str(script), *FLAGS],
        *["--losses", str(ours), "--out", str(plot)],
        timeout_s=150,
    )
    assert through.returncode == 0, through.stdout + through.stderr
    assert plot.read_bytes().startswith(b"\x89PNG")
    alone = reference_training(FLAGS, DEVICES, tmp_path)
    expected = alone.losses
    assert len(expected) == STEPS
    assert float.fromhex(expected[-1]) < float.fromhex(expected[0])
    for step, (a, b) in enumerate(zip(ours.read_text().split(), expected, strict=True)):
        assert a == b, f"step {step}: {float.fromhex(a)} through Gangway, {float.fromhex(b)} alone"
    sampled = [text.split("-" * 100)[1] for text in (through.stdout, alone.output)]
    assert sampled[0] == sampled[1]
