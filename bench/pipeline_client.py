"""The client of pipeline.py: runs the schedules of examples/pipeline_lm.py over stages of a known duration. Prints
one line of JSON: the seconds of each step.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
import time
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "examples"))
sys.path.append(str(ROOT / "python"))


class Stage:
    """Each call takes `seconds` on its device, after the previous call, and no CPU of the host."""

    def __init__(self, device: Any, shape: tuple[int, ...], seconds: float) -> None:
        import jax
        import numpy as np
        from jax.sharding import Mesh, NamedSharding
        from jax.sharding import PartitionSpec as P

        self._sharding = NamedSharding(Mesh(np.array([device]), "x"), P())
        self.clock = self.put(np.zeros(1, np.float32))
        results = [jax.ShapeDtypeStruct(s, np.float32) for s in (self.clock.shape, shape)]
        work = jax.ffi.ffi_call("gangway_simulated_work", results)
        microseconds = np.int64(seconds * 1e6)
        self._work = jax.jit(lambda clock, x: work(clock, x, microseconds=microseconds))
        self._kept: dict[int, Any] = {}

    def put(self, x: Any) -> Any:
        import jax

        return jax.device_put(x, self._sharding)

    def forward(self, m: int, x: Any, labels: Any = None) -> Any:
        self._kept[m] = x
        self.clock, y = self._work(self.clock, x)
        return y

    def backward(self, m: int, gradient: Any) -> Any:
        kept = self._kept.pop(m)
        self.clock, y = self._work(self.clock, kept if gradient is None else gradient)
        return y


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--schedule", required=True)
    parser.add_argument("--microbatches", type=int, required=True)
    parser.add_argument("--stage-ms", type=float, required=True)
    parser.add_argument("--bytes", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    args = parser.parse_args()

    import gangway

    devices = gangway.connect()

    import jax
    import numpy as np
    import pipeline_lm

    shape = (args.bytes // 4,)
    stages: Any = [Stage(device, shape, args.stage_ms / 1e3) for device in devices]
    inputs = [stages[0].put(np.full(shape, m, np.float32)) for m in range(args.microbatches)]
    labels = [np.float32(0)] * args.microbatches
    seconds = []
    for _ in range(args.steps + 1):
        jax.block_until_ready([inputs, [stage.clock for stage in stages]])
        began = time.monotonic()
        results = pipeline_lm.run(pipeline_lm.SCHEDULES[args.schedule], stages, inputs, labels)
        jax.block_until_ready([stage.clock for stage in stages])
        seconds.append(time.monotonic() - began)
        assert [float(y[0]) for y in results] == list(range(args.microbatches))
    print(json.dumps(seconds[1:]))  # the first step compiles


if __name__ == "__main__":
    main()
