"""Fits a line on all devices of a cluster, and goes on when one of its workers dies: the script of the recording on the
first page.

    gangway run examples/survive.py    # then kill a worker while it runs
"""

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

parser = argparse.ArgumentParser(description="Fit a line on all devices.")
parser.add_argument("--steps", type=int, default=1000)
parser.add_argument("--every", type=int, default=250, help="steps between copies of the weights")
args = parser.parse_args()

mesh = jax.make_mesh((jax.device_count(),), ("data",))
print(jax.device_count(), "devices,", jax.process_count(), "process", flush=True)


@jax.jit
def step(w: jax.Array, x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    loss, slope = jax.value_and_grad(lambda w: jnp.mean((x @ w - y) ** 2))(w)
    return w - 0.02 * slope, loss  # the mean over all rows is an all-reduce over all workers


random = np.random.default_rng(0)
rows = random.random((4096, 64), np.float32)
sums = rows @ random.random(64, np.float32)
done, saved, failures = 0, np.zeros(64, np.float32), 0
while done < args.steps:
    try:
        x, y = jax.device_put((rows, sums), NamedSharding(mesh, P("data")))
        w = jax.device_put(saved, NamedSharding(mesh, P()))
        for at in range(done + 1, args.steps + 1):
            w, loss = step(w, x, y)
            loss.block_until_ready()
            if at % args.every == 0:
                done, saved, failures = at, np.asarray(w), 0
                print(f"step {done}: loss {float(loss):.5f}", flush=True)
    except jax.errors.JaxRuntimeError as error:  # names what was lost; everything else lives
        failures += 1
        if failures > 8:  # the controller is gone, and the session with it
            raise
        print(f"{error}\nback to step {done}", flush=True)
        time.sleep(failures - 1)
