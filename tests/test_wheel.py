"""The wheel gangway-runtime in a bare Debian 12 and a bare Debian 13, with nothing but Python and what pip installs: the
command, a cluster, and scripts through both doors, with the JAX that pip chooses. It builds everything in
release mode, unless GANGWAY_WHEEL names a wheel. Needs root, and the mirrors of Debian and of Python packages.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest
from harness import ROOT, free_port

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.timeout(3 * 3600),
    pytest.mark.skipif(os.geteuid() != 0, reason="a bare Debian is made by root only"),
]

PYTHONS = {"bookworm": "3.11", "trixie": "3.13"}
SYSTEM = {"libc", "libm", "libdl", "librt", "libpthread", "libresolv", "libstdc++", "libgcc_s"}
SCRIPT = """
import jax, numpy as np
import jax.numpy as jnp
assert len(jax.devices()) == 4
print(jax.devices()[0].client.runtime_type.split("/")[0])
print(float(jax.jit(jnp.sum)(np.ones(8, np.float32))))
print(round(float(jnp.linalg.det(2 * jnp.eye(3)))))  # OpenBLAS, in a worker
"""
RUNTIME = {"ifrt": "proxy", "pjrt": "pjrt_ifrt"}


@dataclasses.dataclass
class Bare:
    """A bare Debian, in which `folder` has its own path, a venv with the wheel, and the state of a cluster."""

    suite: str
    folder: pathlib.Path

    def run(self, *command: str | pathlib.Path, timeout_s: float = 100) -> str:
        passed = ("PATH", "HOME", "GANGWAY_CACHE", "PIP_CERT", "PIP_INDEX_URL", "https_proxy")
        ran = subprocess.run(
            [ROOT / "tools" / "debian_root.sh", self.suite, *command],
            env={
                **{name: os.environ[name] for name in passed if name in os.environ},
                "GANGWAY_ROOT_BINDS": str(self.folder),
                "GANGWAY_STATE_DIR": str(self.folder / "state"),
                "GANGWAY_PORT": (self.folder / "port").read_text(),
            },
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    def gangway(self, *arguments: str | pathlib.Path) -> str:
        return self.run(self.folder / "venv" / "bin" / "gangway", *arguments)

    def python(self, text: str) -> str:
        return self.run(self.folder / "venv" / "bin" / "python", "-c", text)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    if given := os.environ.get("GANGWAY_WHEEL"):
        return pathlib.Path(given)
    folder = tmp_path_factory.mktemp("wheel")
    built = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), str(ROOT)],
        capture_output=True,
        text=True,
        timeout=2.5 * 3600,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module", params=PYTHONS)
def bare(
    request: pytest.FixtureRequest, wheel: pathlib.Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bare]:
    """With a cluster of the wheel."""
    made = Bare(request.param, tmp_path_factory.mktemp(request.param))
    (made.folder / "port").write_text(str(free_port()))
    (made.folder / wheel.name).write_bytes(wheel.read_bytes())
    made.run("python3", "-m", "venv", made.folder / "venv", timeout_s=1800)  # makes the system, too
    pip = made.folder / "venv" / "bin" / "pip"
    made.run(pip, "install", "-q", made.folder / wheel.name, timeout_s=1200)
    made.gangway("up", "--detach", "--workers", "2", "--devices", "2")
    yield made
    made.gangway("down")


def test_the_system_is_bare(bare: Bare) -> None:
    assert (
        bare.python("import sys; print(*sys.version_info[:2], sep='.')").strip()
        == (PYTHONS[bare.suite])
    )
    installed = bare.run("dpkg-query", "-W", "-f", "${Package}\n").split()
    assert not [
        name for name in installed if re.match("libgrpc|libabsl|libprotobuf|libopenblas", name)
    ]


def test_all_shared_libraries_are_found(bare: Bare) -> None:
    """Also those that the scripts here do not use; and none but the C library and the C++ runtime is the system's."""
    package = next(bare.folder.glob("venv/lib/python3.*/site-packages/gangway"))
    files = [package / "_bin" / "gangway", *(package / "_libs").iterdir(), *package.glob("*.so")]
    # A library alone does not know the binary's RPATH.
    found = bare.run("env", f"LD_LIBRARY_PATH={package / '_libs'}", "ldd", *files)
    assert "not found" not in found, found
    for name, path in re.findall(r"(\S+) => (\S+)", found):
        assert path.startswith(str(package)) or name.split(".so")[0] in SYSTEM, (name, path)
    assert (package / "_copyright" / "xla_cpu" / "LICENSE").exists()
    assert {"libgrpc-dev", "libabsl-dev", "libprotobuf-dev", "libc-ares-dev", "libssl3"} <= {
        file.name for file in (package / "_copyright").iterdir()
    }


@pytest.mark.parametrize("door", ["ifrt", "pjrt"])
def test_a_script_runs(bare: Bare, door: str) -> None:
    printed = bare.python(f"import gangway; gangway.connect(door={door!r})\n" + SCRIPT)
    assert printed.split() == [RUNTIME[door], "8.0", "8"]


def test_gangway_run_uses_the_environments_python_and_the_plugin(bare: Bare) -> None:
    (bare.folder / "script.py").write_text(SCRIPT)
    printed = bare.gangway("run", bare.folder / "script.py")
    assert printed.split() == [RUNTIME["pjrt"], "8.0", "8"]


def test_a_remote_cluster_by_tls(bare: Bare) -> None:
    """Which needs the second library of the plugin; nothing listens, and it says so."""
    tls = bare.folder / "tls"
    bare.gangway("certs", tls, "--hosts", "127.0.0.1")
    text = (
        f"import gangway\ntry: gangway.connect('127.0.0.1:{free_port()}', tls='{tls}')\n"
        "except gangway.GangwayError as error: print(error)\n"
    )
    said = bare.python(text)
    assert "is not reached" in said and "libgangway" not in said, said
