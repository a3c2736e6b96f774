"""The pods of `gangway kubernetes`, run as processes with networks, users and volumes as Kubernetes gives them
(testing/pods.py): the cluster becomes ready, a script trains on it and goes on when a worker's pod is deleted and comes
back, and what is missing or wrong is named. tests/test_kubernetes.py validates the manifests themselves.
"""

from __future__ import annotations

import pathlib
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from harness import GANGWAY, PATIENCE, wait_for
from namespaces import needs_namespaces
from pods import Image, MissingObject, Objects, PodNetwork, PodProcess, pods_of

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600), needs_namespaces]

CLUSTER = """
[controller]
worker_wait = 60
[[island]]
workers = 2
devices = 2
"""
# Keeps its weights on the host, and survives the loss of arrays; ends when it is told to.
SCRIPT = """
import os, sys, time
import jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

assert len(jax.devices()) == 4 and sys.argv[1:] == ["--rate", "0.5"]
mesh = Mesh(np.array(jax.devices()), ("data",))
rows, everywhere = NamedSharding(mesh, P("data")), NamedSharding(mesh, P())
x = np.arange(32, dtype=np.float32).reshape(8, 4) / 32

@jax.jit
def update(weights, batch):
    loss, gradient = jax.value_and_grad(lambda w: ((batch @ w - 1) ** 2).mean())(weights)
    return weights - 0.5 * gradient, loss

weights, step, deadline = np.zeros(4, np.float32), 0, time.monotonic() + 500
while not os.path.exists("/tmp/end"):
    assert time.monotonic() < deadline
    try:
        made, loss = update(jax.device_put(weights, everywhere), jax.device_put(x, rows))
        weights, loss = np.asarray(made), float(loss)
    except jax.errors.JaxRuntimeError as error:
        print("lost:", error, flush=True)
        continue
    step += 1
    print("step", step, loss, flush=True)
    time.sleep(0.1)  # its output stays short
print("done", flush=True)
"""


def gangway(*arguments: str | pathlib.Path) -> str:
    ran = subprocess.run(
        [str(GANGWAY), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=20 * PATIENCE,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


class Applied:
    """A cluster's manifests, and the pods of it that run."""

    def __init__(self, folder: pathlib.Path, image: Image | None = None) -> None:
        self._image = image
        (folder / "cluster.toml").write_text(CLUSTER)
        (folder / "train.py").write_text(SCRIPT)
        gangway("certs", folder / "tls", "--any-host", "--days", "1")
        gangway("certs", folder / "tls", "--add", "client", "--role", "client")
        options = ("--image", "gangway:0.1.0", "--tls", folder / "tls")
        script = ("--ship", folder / "train.py", "--rate", "0.5")
        printed = gangway("kubernetes", folder / "cluster.toml", *options, *script)
        self.documents = {each["kind"]: each for each in yaml.safe_load_all(printed)}
        self.objects = Objects()
        for document in yaml.safe_load_all(printed):
            self.objects.add(document)
        self.pods: dict[str, dict[str, Any]] = {}
        for pod in pods_of(self.documents["JobSet"]):
            self.pods[pod["metadata"]["name"].removeprefix("gangway-")] = pod
        self._folder = folder
        self.network = PodNetwork(folder)
        self.running: dict[str, PodProcess] = {}
        self._count = 0

    def make(self, name: str, objects: Objects) -> PodProcess:
        self._count += 1
        folder = self._folder / f"{self._count}"
        folder.mkdir()
        return PodProcess(self.pods[name], objects, self.network, folder, self._image)

    def start(self, name: str) -> PodProcess:
        assert name not in self.running
        pod = self.running[name] = self.make(name, self.objects)
        service = self.documents["Service"]["metadata"]["name"]
        if name == "head-0-0":
            self.network.name(service, pod.address)
        return pod

    def delete(self, name: str) -> int:
        return self.running.pop(name).delete()

    def stop(self) -> None:
        for name in list(self.running):
            self.delete(name)
        self.network.close()


@pytest.fixture(scope="module")
def applied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Applied]:
    made = Applied(tmp_path_factory.mktemp("pods"))
    yield made
    made.stop()


def said(pod: PodProcess) -> str:
    return pod.log.read_text()


def steps(script: PodProcess) -> int:
    assert script.status() is None, said(script)
    return said(script).count("step ")


def test_the_script_goes_on_when_a_workers_pod_comes_back(applied: Applied) -> None:
    head = applied.start("head-0-0")
    wait_for("the head answers", lambda: head.probe("startupProbe")[0], 60)
    applied.start("island-0-0-0")
    missing = "still waits for island0/worker1"
    wait_for("one worker", lambda: head.probe("readinessProbe")[1].strip().endswith(missing), 60)
    assert not head.probe("readinessProbe")[0], "a place is not claimed"
    applied.start("island-0-0-1")
    wait_for("all workers", lambda: head.probe("readinessProbe")[0], 60)
    assert head.probe("livenessProbe")[0]

    script = applied.start("script-0-0")
    wait_for("a step", lambda: steps(script) >= 1, 60)
    assert applied.delete("island-0-0-1") == 143, (
        "a worker that is told to end has not completed its index"
    )
    made = steps(script)
    assert missing in head.probe("readinessProbe")[1]
    applied.start("island-0-0-1")
    wait_for("all workers again", lambda: head.probe("readinessProbe")[0], 60)
    wait_for("more steps", lambda: steps(script) >= made + 3, 60)
    assert script.exec(["touch", "/tmp/end"], 20)[0] == 0
    assert script.wait(60 * PATIENCE) == 0, said(script)
    assert said(script).splitlines()[-1] == "done"
    applied.delete("script-0-0")


def test_the_workers_find_a_new_controller_at_another_address(applied: Applied) -> None:
    """After the one above, on the same cluster."""
    before = applied.running["head-0-0"].address
    assert applied.delete("head-0-0") == 143, "its job is not complete"
    head = applied.start("head-0-0")
    assert head.address != before
    wait_for("the workers are back", lambda: head.probe("readinessProbe")[0], 100)


def test_a_pod_without_its_secret_does_not_start(applied: Applied) -> None:
    without = Objects(
        {name: data for name, data in applied.objects.data.items() if name[0] != "Secret"}
    )
    with pytest.raises(MissingObject, match='secret "gangway-tls" not found'):
        applied.make("island-0-0-0", without)


def test_an_empty_secret_is_named(applied: Applied) -> None:
    """Such as one made of the wrong folder."""
    wrong = Objects(dict(applied.objects.data))
    wrong.data["Secret", "gangway-tls"] = {"other": b"x"}
    for name in ("head-0-0", "island-0-0-0"):
        pod = applied.make(name, wrong)
        assert pod.wait(60 * PATIENCE) != 0
        assert "cannot read /etc/gangway/tls/" in said(pod)
        pod.delete()
