"""The wheel gangway-runtime in a bare Debian 12 and a bare Debian 13, with nothing but Python and what pip installs: the
command, a cluster, and scripts through both doors, with the JAX that pip chooses; and what pip says where the source
cannot be built. It builds everything in release mode, unless GANGWAY_WHEEL names a wheel. Needs root, and the mirrors
of Debian and of Python packages.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator

import pytest
import wheel_platform
from harness import ROOT, free_port

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.timeout(3 * 3600),
    pytest.mark.skipif(os.geteuid() != 0, reason="a bare Debian is made by root only"),
]

PYTHONS = {"bookworm": "3.11", "trixie": "3.13"}
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
    """A bare Debian, in which `folder` has its own path. There are the clone's `dist` and `examples`, the environment
    that docs/start.md makes in the home folder, and the state of a cluster.
    """

    suite: str
    folder: pathlib.Path

    def run(self, *command: str | pathlib.Path, timeout_s: float = 100, fails: bool = False) -> str:
        """What the command prints; where it is to fail, also its stderr."""
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
        assert (ran.returncode != 0) == fails, ran.stdout + ran.stderr
        return ran.stdout + ran.stderr if fails else ran.stdout

    def gangway(
        self, *arguments: str | pathlib.Path, timeout_s: float = 100, fails: bool = False
    ) -> str:
        binary = self.folder / "gangway" / "bin" / "gangway"
        return self.run(binary, *arguments, timeout_s=timeout_s, fails=fails)

    def pip(self, *arguments: str | pathlib.Path, fails: bool = False) -> str:
        pip = self.folder / "gangway" / "bin" / "pip"
        quiet = "--disable-pip-version-check"
        return self.run(pip, quiet, *arguments, timeout_s=1200, fails=fails)

    def follow(self, *lines: str) -> str:
        """As a user does, in one shell whose home is `folder`."""
        script = "\n".join(("set -e", f"cd {self.folder}", *lines))
        return self.run("env", f"HOME={self.folder}", "bash", "-c", script, timeout_s=1200)

    def python(self, text: str) -> str:
        return self.run(self.folder / "gangway" / "bin" / "python", "-c", text)


def lines_of_start() -> list[str]:
    """The commands of docs/start.md that install the wheel and use it."""
    (part,) = re.findall(r"(?ms)^## Install it$(.*)", (ROOT / "docs" / "start.md").read_text())
    lines = re.findall(r"^ {4}(\S.*)$", part, re.MULTILINE)
    assert lines[0] == "make wheel"
    return [str(line) for line in lines[1:]]


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
    (made.folder / "dist").mkdir()
    shutil.copy(wheel, made.folder / "dist")
    shutil.copytree(ROOT / "examples", made.folder / "examples")
    made.run("true", timeout_s=1800)  # makes the system, unless it is there
    made.follow(*(line for line in lines_of_start() if not line.startswith("gangway ")))
    made.gangway("up", "--detach", "--workers", "2", "--devices", "2")
    yield made
    made.gangway("down")


def test_the_tag_is_what_the_files_need(wheel: pathlib.Path) -> None:
    """By auditwheel, which knows nothing of Gangway's own check."""
    assert wheel.name.endswith("-py3-none-manylinux_2_35_x86_64.whl")
    python = subprocess.run(
        [ROOT / "tools" / "venv.sh", "auditwheel"], capture_output=True, text=True, check=True
    ).stdout.strip()
    told = subprocess.run(
        [python, "-m", "auditwheel", "show", "--json", wheel],
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    found = json.loads(told.stdout)
    assert found["sym_tag"] == "manylinux_2_35_x86_64"
    with zipfile.ZipFile(wheel) as archive:
        own = {name.rpartition("/")[2] for name in archive.namelist() if "/_libs/" in name}
    # OpenBLAS finds its Fortran runtime by the RPATH of the binary that loads it, which auditwheel does not know.
    assert set(found["external_libs"]) <= own
    assert not found["unsupported_isa"]


def test_a_host_without_jax_runs_a_cluster(wheel: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """As one that only runs workers: of this machine, with the wheel alone."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("GANGWAY_")},
        "GANGWAY_PORT": str(free_port()),
        "GANGWAY_STATE_DIR": str(tmp_path / "state"),
    }

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        binary = str(tmp_path / "venv" / "bin" / command[0])
        return subprocess.run(
            [binary, *command[1:]], env=environment, capture_output=True, text=True, timeout=100
        )

    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    installed = run("pip", "install", "--no-deps", str(wheel))
    assert installed.returncode == 0, installed.stderr
    up = run("gangway", "up", "--detach")
    try:
        assert up.returncode == 0, up.stderr
        refused = run("gangway", "run", "script.py")
        assert refused.returncode == 1
        assert re.search(r"bin/python[\d.]* has no JAX, which scripts need: run `", refused.stderr)
    finally:
        down = run("gangway", "down")
    assert down.returncode == 0, down.stderr


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
    package = next(bare.folder.glob("gangway/lib/python3.*/site-packages/gangway"))
    files = [package / "_bin" / "gangway", *(package / "_libs").iterdir(), *package.glob("*.so")]
    # A library alone does not know the binary's RPATH.
    found = bare.run("env", f"LD_LIBRARY_PATH={package / '_libs'}", "ldd", *files)
    assert "not found" not in found, found
    for name, path in re.findall(r"(\S+) => (\S+)", found):
        assert path.startswith(str(package)) or name in wheel_platform.SYSTEM, (name, path)
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


def test_a_language_model_is_trained(bare: Bare) -> None:
    """As docs/start.md says it, on a cluster of the default shape, beside the one that runs."""
    lines = [line for line in lines_of_start() if line.startswith(("source ", "gangway "))]
    assert [line.split()[1] for line in lines[1:]] == ["up", "down"]
    own = (f"export GANGWAY_PORT={free_port()}", f"export GANGWAY_STATE_DIR={bare.folder / 'own'}")
    try:
        told = bare.follow(*own, *lines)
    finally:
        bare.follow(*own, lines[0], "gangway down || true")
    ((first, last),) = re.findall(r"loss ([\d.]+) -> ([\d.]+)", told)
    assert float(last) < float(first) - 1, told


@pytest.fixture(scope="module")
def source(bare: Bare) -> pathlib.Path:
    """The repository's files, without what setup makes, in a folder that the bare Debian sees."""
    folder = bare.folder / "source"
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\0")
    for name in filter(None, listed):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    return folder


def test_the_source_says_what_its_build_lacks(bare: Bare, source: pathlib.Path) -> None:
    told = bare.pip("install", source, fails=True)
    assert "CMake Error" not in told and "Traceback" not in told, told
    if bare.suite == "bookworm":
        assert re.search(
            r"^ +apt-get install --no-install-recommends .*'libgrpc\+\+-dev=", told, re.M
        )
        assert "tools/setup.sh --deps\n" in told
    else:
        assert "pinned to those of Debian 12" in told
        assert "GNU/Linux 13 (trixie), x86_64, glibc 2.41" in told


def test_cuda_is_found_in_the_wheels_environment_and_says_that_no_gpu_is_there(bare: Bare) -> None:
    if list(pathlib.Path("/dev").glob("nvidia[0-9]*")):
        pytest.skip("this machine has a GPU")
    told = bare.gangway("up", "--plugin", "cuda", "--port", str(free_port()), fails=True)
    assert "pip install 'jax[cuda13]'" in told and str(bare.folder / "gangway" / "lib") in told
    version = bare.python("import jaxlib.version; print(jaxlib.version.__version__)").strip()
    bare.pip("install", "-q", "--no-deps", f"jax-cuda13-pjrt=={version}")  # NVIDIA's are 3 GB
    told = bare.gangway("up", "--plugin", "cuda", "--port", str(free_port()), fails=True)
    assert "No visible GPU devices" in told and "nvidia-smi" in told


def test_the_extra_cuda_brings_jaxs(bare: Bare, wheel: pathlib.Path) -> None:
    """NVIDIA's packages are named, not fetched: new versions of pip ask for their metadata alone."""
    if bare.suite == "bookworm":
        pytest.skip("its pip fetches whole packages, of 3 GB, to know what they need")
    told = bare.pip("install", "--dry-run", f"{bare.folder / 'dist' / wheel.name}[cuda]")
    (would,) = re.findall(r"^Would install (.*)$", told, re.MULTILINE)
    assert "jax-cuda13-plugin-" in would and "nvidia-cublas-" in would
