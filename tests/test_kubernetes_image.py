"""The image of deploy/kubernetes/Containerfile, built by buildah from the wheel and from a bare Debian of our own, since
no registry of images is needed for that. Needs root, and the mirrors of Debian and of Python packages. It builds the
wheel in release mode, unless GANGWAY_WHEEL names one.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
from collections.abc import Iterator

import pytest
from harness import GANGWAY, PATIENCE, ROOT, wait_for
from namespaces import needs_namespaces
from pods import image_at
from test_kubernetes_pods import Applied, said, steps
from test_wheel import wheel

__all__ = ["wheel"]  # a fixture

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.timeout(3 * 3600),
    pytest.mark.skipif(os.geteuid() != 0, reason="a bare Debian is made by root only"),
    needs_namespaces,
]

CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
BASE, IMAGE = "localhost/debian:bookworm", "localhost/gangway:test"
USER = "65532:65532"  # that of the manifests
MIB_MAX = 1200  # Debian with Python, JAX, and XLA's CPU plugin


class Buildah:
    """Images and containers in a folder of their own."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._store = folder / "store"
        self._flags = ["--root", str(self._store), "--runroot", str(folder / "run")]
        self._flags += ["--storage-driver", "overlay"]
        self._environment = {**os.environ, "XDG_RUNTIME_DIR": str(folder)}

    def run(self, *command: str | pathlib.Path, timeout_s: float = 1800) -> str:
        ran = subprocess.run(
            ["buildah", *self._flags, *map(str, command)],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
        assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
        return ran.stdout.strip()

    def close(self) -> None:
        self.run("rm", "--all")
        self.run("rmi", "--all", "--force")
        overlay = self._store / "overlay"
        subprocess.run(["umount", str(overlay)], capture_output=True)  # the driver's own mount
        shutil.rmtree(self._store, ignore_errors=True)


@pytest.fixture(scope="module")
def image(wheel: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Buildah]:
    """With the container `made` of the image."""
    for command in (
        [ROOT / "tools" / "setup.sh", "--packages", "images"],
        [ROOT / "tools" / "debian_root.sh", "bookworm"],
    ):
        done = subprocess.run(
            [str(word) for word in command], capture_output=True, text=True, timeout=1800
        )
        assert done.returncode == 0, done.stdout + done.stderr
    buildah = Buildah(tmp_path_factory.mktemp("image"))
    try:
        buildah.run("from", "--name", "base", "scratch")
        buildah.run("copy", "base", done.stdout.strip(), "/")
        # Those of the machine, which may know a mirror's.
        buildah.run("copy", "base", os.path.realpath(CERTIFICATES), CERTIFICATES)
        buildah.run("config", "--env", f"PIP_CERT={CERTIFICATES}", "base")
        buildah.run("commit", "base", BASE)
        folder = tmp_path_factory.mktemp("dist")
        shutil.copy(wheel, folder)
        file = ROOT / "deploy" / "kubernetes" / "Containerfile"
        build = ["bud", "--isolation=chroot", "--build-arg", f"BASE={BASE}", "-t", IMAGE]
        buildah.run(*build, "-f", file, folder)
        buildah.run("from", "--name", "made", IMAGE)
        yield buildah
    finally:
        buildah.close()


def test_the_user_is_that_of_the_manifests_and_finds_the_mount_points(image: Buildah) -> None:
    config = json.loads(image.run("inspect", "--type", "image", IMAGE))["OCIv1"]["config"]
    assert config["User"] == USER
    run = ["run", "--isolation=chroot", "made", "--"]
    assert image.run(*run, "id", "-u") == USER.partition(":")[0]
    folders = ["/etc/gangway/files", "/etc/gangway/tls", "/var/lib/gangway"]
    assert image.run(*run, "stat", "-c", "%F", *folders).splitlines() == ["directory"] * 3
    image.run(*run, "sh", "-c", "touch /var/lib/gangway/x && ! touch /opt/gangway/x 2>/dev/null")


def test_it_holds_the_command_of_this_version_and_little_else(image: Buildah) -> None:
    version = subprocess.run([GANGWAY, "version"], capture_output=True, text=True).stdout.strip()
    run = ["run", "--isolation=chroot", "made", "--"]
    assert image.run(*run, "gangway", "version") == version
    image.run(*run, "python", "-c", "import gangway")
    image.run(*run, "sh", "-c", "! python -m pip --version 2>/dev/null")
    root = image.run("mount", "made")
    size = subprocess.run(["du", "-sxm", root], capture_output=True, text=True)
    assert int(size.stdout.split()[0]) < MIB_MAX, size.stdout


def test_pods_of_the_image_train(image: Buildah, tmp_path: pathlib.Path) -> None:
    """With the image's Python and JAX, and as its user."""
    config = json.loads(image.run("inspect", "--type", "image", IMAGE))["OCIv1"]["config"]
    environment = dict(each.split("=", 1) for each in config["Env"])
    root = pathlib.Path(image.run("mount", "made"))
    cluster = Applied(tmp_path, image_at(root, environment))

    def all_ready() -> bool:
        for name, pod in cluster.running.items():
            assert pod.status() is None, f"{name}: {said(pod)}"
        return head.probe("readinessProbe")[0]

    try:
        head, *_ = [cluster.start(name) for name in ("head-0-0", "island-0-0-0", "island-0-0-1")]
        wait_for("all workers", all_ready, 120)
        script = cluster.start("script-0-0")
        wait_for("steps", lambda: steps(script) >= 3, 120)
        assert script.exec(["touch", "/tmp/end"], 20)[0] == 0
        assert script.wait(60 * PATIENCE) == 0, said(script)
        assert said(script).splitlines()[-1] == "done"
    finally:
        cluster.stop()
