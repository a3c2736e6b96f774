"""`pathwaysutils.elastic`, unmodified: a script whose mesh lies in one island loses it, resumes from its
checkpoint on the other island, and returns when the lost worker is back. With a model that compiles in a moment; in the
nightly run with the language model, too.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import subprocess
from typing import Any

import pytest
from harness import GANGWAY, PATIENCE, ROOT, wait_for
from hosts import Hosts

FLAGS = ["--batch", "2", "--seed", "3"]
# The first statements of a script written for Pathways.
REGISTERED = "import pathwaysutils; pathwaysutils.initialize(); "
STEPS = {"tiny": 100, "language": 20}
MODELS = {
    "language": "",
    "tiny": """
import os, sys, time
sys.path.insert(0, os.path.dirname(sys.argv[1]))
import jax, numpy as np, train_lm
from jax.sharding import NamedSharding, PartitionSpec as P

def make_training(args, model, mesh):
    split = NamedSharding(mesh, P(None, "tensor"))
    def loss_of(weights, batch):
        x = batch / 256
        return ((x[:, :16] @ weights - x[:, 1:17]) ** 2).mean()
    @jax.jit
    def update(weights, momentum, batch):
        loss, gradient = jax.value_and_grad(loss_of)(weights, batch)
        momentum = 0.9 * momentum + gradient
        return weights - args.rate * momentum, momentum, loss
    def start():
        return [jax.device_put(np.full((16, 16), value, np.float32), split) for value in (0.1, 0)]
    def step(*arguments):
        if not os.path.exists(os.environ["IS_BACK"]):
            time.sleep(0.3)  # as if it computed, so that the lost worker returns before the last step
        return update(*arguments)
    return start, step

train_lm.make_training = make_training
""",
}
RUN = "import runpy, sys; del sys.argv[0]; runpy.run_path(sys.argv[0], run_name='__main__')"


class Script:
    """A run of examples/elastic_lm.py, which writes its output to a file."""

    def __init__(
        self,
        hosts: Hosts,
        folder: pathlib.Path,
        model: str,
        *,
        registered: bool = False,
    ) -> None:
        folder.mkdir()
        self.said = folder / "said.log"
        self.losses = folder / "losses"
        path = ROOT / "examples"
        launcher = folder / "launcher.py"
        launcher.write_text((REGISTERED if registered else "") + MODELS[model] + RUN)
        with self.said.open("wb") as out:
            self.process = subprocess.Popen(
                [
                    *[str(GANGWAY), "run", "--port", str(hosts.front_door), str(launcher)],
                    *[str(path / "elastic_lm.py"), *FLAGS, "--losses", str(self.losses)],
                    *["--steps", str(STEPS[model])],
                    *["--checkpoint", str(folder / "state.npz")],
                ],
                env={
                    **hosts.environment,
                    "IS_BACK": str(folder.parent / "is-back"),
                    "PYTHONPATH": f"{path}:{hosts.environment['PYTHONPATH']}",
                },
                stdout=out,
                stderr=out,
            )

    def wait_for(self, words: str, timeout_s: float = 90) -> None:
        def said() -> bool:
            return words in self.said.read_text() or self.process.poll() is not None

        wait_for(f"{words!r} from the script", said, timeout_s)
        assert words in self.said.read_text(), self.said.read_text()

    def end(self) -> list[float]:
        """Waits until the script ends; returns the loss of each step."""
        try:
            assert self.process.wait(timeout=120 * PATIENCE) == 0, self.said.read_text()
        finally:
            self.process.kill()
        return [float.fromhex(loss) for loss in self.losses.read_text().split()]


def pid_of_worker(hosts: Hosts, island: int) -> int:
    status: dict[str, Any] = hosts.status()
    return int(status["islands"][island]["workers"][0]["pid"])


@pytest.mark.faults
@pytest.mark.timeout(500)
@pytest.mark.parametrize("model", ["tiny", pytest.param("language", marks=pytest.mark.nightly)])
def test_a_script_loses_its_island_and_returns_to_it(model: str, tmp_path: pathlib.Path) -> None:
    hosts = Hosts(tmp_path, tls=False, islands=((2,), (2,)), settings="worker_wait = 2\n")
    hosts.start_controller()
    script = None
    try:
        token = tmp_path / "state" / str(hosts.front_door) / "token"
        wait_for("the token", token.exists, 20)
        hosts.start_workers()
        hosts.wait_for("controller", "ready: ")
        script = Script(hosts, tmp_path / "faulty", model, registered=True)
        script.wait_for("island 0: step 5/")
        pid = pid_of_worker(hosts, 0)
        hosts.processes.pop("worker0").kill()  # popped, so that stop() leaves it out
        with contextlib.suppress(ProcessLookupError):  # it has ended already
            os.kill(pid, signal.SIGKILL)
        script.wait_for("island 0 is lost: DATA_LOSS: ")
        script.wait_for("island 1: resumes after step ")
        hosts.start("worker0", "worker", "--island", "0", "--index", "0")
        script.wait_for("island 0 is back")
        (tmp_path / "is-back").touch()
        losses = script.end()
        said = script.said.read_text()
        assert said.count("resumes after step") == 2, said
        assert said.index("island 0 is back") < said.rindex("island 0: resumes after step"), said
        # The losses equal those of a run without a fault: both islands compute the same bits.
        script = Script(hosts, tmp_path / "whole", model)
        assert losses == script.end()
        assert "lost" not in script.said.read_text()
    finally:
        if script:
            script.process.kill()
        hosts.stop()
