"""The client half of bench/pipeline_programs.py: steps of examples/pipeline_lm.py, each as a program, and as it comes.

    pipeline_programs_client.py STAGES

The model is tiny: what is measured is dispatch. Stage k is on device k. Each line on stdin is a command,
"CASE<tab>COUNT": make COUNT more steps, wait for them, and print one line of JSON with the seconds, the losses so far,
the steps that were one message each, and this process's traffic. A case is "plain M" or "program M", with M
microbatches; both train the same model with the same batches, as far as each has come.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import pathlib
import sys
import time
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "examples"))
MODEL = {"layers": 8, "width": 16, "heads": 2, "hidden": 32, "context": 16}
SCHEDULE = "1f1b"
STEPS_MAX = 100_000  # of the schedule of learning rates
SEED = 3


class Training:
    def __init__(self, kind: str, microbatches: int, stages: int) -> None:
        import jax
        import numpy as np
        import pipeline_lm

        import gangway

        self.lm = pipeline_lm.lm
        self.example, self.jax, self.np = pipeline_lm, jax, np
        self.block = gangway.program if kind == "program" else contextlib.nullcontext
        self.model = self.lm.Model(**MODEL)
        options = argparse.Namespace(
            stages=stages, microbatches=microbatches, steps=STEPS_MAX, rate=4e-3, seed=SEED
        )
        meshes = [self.lm.make_mesh([device], 1) for device in jax.devices()[:stages]]
        self.stages = [
            pipeline_lm.Stage(self.model, mesh, index, options) for index, mesh in enumerate(meshes)
        ]
        self.rng = np.random.default_rng(SEED)
        self.text = self.lm.standard_library()
        self.microbatches = microbatches
        self.losses: list[str] = []
        self.captures: list[Any] = []

    def run(self, count: int) -> float:
        """As pipeline_lm.train; returns the seconds."""
        pending: collections.deque[Any] = collections.deque()
        began = time.perf_counter()
        for _ in range(count):
            pending.append(self.step())
            if len(pending) > self.lm.STEPS_AHEAD:
                self.read(pending.popleft())
        while pending:
            self.read(pending.popleft())
        return time.perf_counter() - began

    def step(self) -> Any:
        batch = self.lm.sample_batch(self.rng, self.text, self.microbatches, self.model.context)
        batches = self.np.split(batch, self.microbatches)
        tokens = [self.stages[0].put(b[:, :-1]) for b in batches]
        targets = [self.stages[-1].put(b[:, 1:]) for b in batches]
        schedule = self.example.SCHEDULES[SCHEDULE]
        with self.block() as capture:
            losses = self.example.step(schedule, self.stages, tokens, targets)
        self.captures.append(capture)
        return losses

    def read(self, losses: Any) -> None:
        self.losses.append(float(self.np.mean(self.jax.device_get(losses))).hex())

    def single_messages(self) -> int:
        """The steps that were one message each."""
        made = [each for each in self.captures if each is not None]
        return sum(c.launches == 1 and not c.operations_sent_as_they_came for c in made)


def main() -> None:
    stages = int(sys.argv[1])
    import gangway

    gangway.connect()
    from launch_client import traffic

    trainings: dict[str, Training] = {}
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        case, count = line.rstrip("\n").split("\t")
        kind, microbatches = case.split()
        if case not in trainings:
            trainings[case] = Training(kind, int(microbatches), stages)
        training = trainings[case]
        seconds = training.run(int(count))
        answer = {"losses": training.losses, "single_messages": training.single_messages()}
        print(json.dumps({"seconds": seconds, **answer, **traffic()}), flush=True)


if __name__ == "__main__":
    main()
