"""What `gangway kubernetes` prints, against the schemas of Kubernetes and the definitions of JobSet and Kueue; and what
it refuses. tests/test_kubernetes_server.py applies it to a Kubernetes. The first run on a machine downloads Go, two of
its modules (40 MB), and the schemas.
"""

from __future__ import annotations

import pathlib
import subprocess

import pytest
from harness import GANGWAY, PATIENCE, ROOT

pytestmark = pytest.mark.timeout(600)  # the first test on a machine downloads

TESTDATA = ROOT / "gangway" / "cli" / "testdata"
DEPLOY = ROOT / "deploy" / "kubernetes"
IMAGE = ("--image", "registry.example/gangway:0.1.0")
CLUSTER = "[[island]]\nworkers = 2\ndevices = 4\n"


def kubernetes(*arguments: str | pathlib.Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(GANGWAY), "kubernetes", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=20 * PATIENCE,
    )


@pytest.fixture(scope="module")
def validator() -> list[str]:
    """The command that validates the manifests that follow."""
    modules = ROOT / "testing" / "kubernetes" / "crds"
    names = ("sigs.k8s.io/jobset", "sigs.k8s.io/kueue")
    for command in (["mod", "download", *names], ["list", "-m", "-f", "{{.Dir}}", *names]):
        found = subprocess.run(
            [ROOT / "tools" / "go.sh", *command],
            cwd=modules,
            capture_output=True,
            text=True,
            timeout=500,
        )
        assert found.returncode == 0, found.stderr
    folders = [f"{folder}/config/components/crd/bases" for folder in found.stdout.split()]
    python = subprocess.run(
        [ROOT / "tools" / "venv.sh", "kubernetes"], capture_output=True, text=True, timeout=500
    )
    assert python.returncode == 0, python.stderr
    schemas = str(ROOT / "testing" / "kubernetes_schemas.py")
    return [python.stdout.strip(), schemas, "--crds", *folders, "--"]


def validated(validator: list[str], *files: pathlib.Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*validator, *map(str, files)], capture_output=True, text=True, timeout=60 * PATIENCE
    )


def test_manifests_and_examples_are_valid(validator: list[str], tmp_path: pathlib.Path) -> None:
    """The golden files of the unit tests are what people have read."""
    (tmp_path / "cluster.toml").write_text(CLUSTER)
    printed = kubernetes(tmp_path / "cluster.toml", *IMAGE, "/app/train.py")
    assert printed.returncode == 0, printed.stderr
    (tmp_path / "printed.yaml").write_text(printed.stdout)
    files = [*TESTDATA.glob("kubernetes_*.yaml"), *DEPLOY.glob("*.yaml"), tmp_path / "printed.yaml"]
    assert len(files) >= 4
    checked = validated(validator, *files)
    assert (checked.returncode, checked.stdout) == (0, ""), checked.stdout + checked.stderr


# What is right, wrong, and complained about.
MISTAKES = [
    ("replicatedJobs:", "replicatedJob:", "replicatedJob"),  # a field of JobSet
    ("maxRestarts: 0", "maxRestarts: never", "never"),  # the type of a value of JobSet
    ("publishNotReadyAddresses: true", "publishNotReadyAddresses: 1", "boolean"),  # a Service's
    ("backoffLimitPerIndex:", "backoffLimitPerIndeks:", "backoffLimitPerIndeks"),  # a job's
]


def test_the_validation_finds_mistakes(validator: list[str], tmp_path: pathlib.Path) -> None:
    text = (TESTDATA / "kubernetes_small.yaml").read_text()
    files = [tmp_path / f"{number}.yaml" for number in range(len(MISTAKES))]
    for file, (right, wrong, _) in zip(files, MISTAKES, strict=True):
        assert right in text
        file.write_text(text.replace(right, wrong))
    checked = validated(validator, *files)
    assert checked.returncode == 1, checked.stderr
    for file, (_, _, complaint) in zip(files, MISTAKES, strict=True):
        said = [line for line in checked.stdout.splitlines() if line.startswith(f"{file}:")]
        assert any(complaint in line for line in said), checked.stdout


def test_files_that_are_missing_or_wrong_are_named(tmp_path: pathlib.Path) -> None:
    cluster = tmp_path / "cluster.toml"
    cluster.write_text(CLUSTER)
    (tmp_path / "empty").mkdir()

    def refused(*arguments: str | pathlib.Path) -> str:
        ran = kubernetes(*arguments)
        assert ran.returncode != 0 and ran.stdout == "", ran.stdout
        return ran.stderr

    assert "cannot read the configuration" in refused(tmp_path / "none.toml", *IMAGE)
    assert "--image is required" in refused(cluster)
    assert "no DNS label" in refused(cluster, *IMAGE, "--name", "My_Cluster")
    assert "cannot read" in refused(cluster, *IMAGE, "--ship", tmp_path / "none.py")
    assert "holds no certificate" in refused(cluster, *IMAGE, "--tls", tmp_path / "empty")
    assert "holds no certificate" in refused(cluster, *IMAGE, "--tls", tmp_path / "none")
    named = tmp_path / "named"
    subprocess.run([GANGWAY, "certs", named, "--hosts", "a.example"], check=True, timeout=20)
    assert "Kubernetes chooses the hosts" in refused(cluster, *IMAGE, "--tls", named)
    cluster.write_text('[[island]]\nworkers = [ { host = "a.example", devices = 4 } ]\n')
    assert "Kubernetes chooses the hosts" in refused(cluster, *IMAGE)


def test_the_authoritys_key_stays_here(tmp_path: pathlib.Path) -> None:
    """With it, whoever reads the Secret could make certificates."""
    (tmp_path / "cluster.toml").write_text(CLUSTER)
    made = subprocess.run(
        [GANGWAY, "certs", tmp_path / "tls", "--any-host"],
        capture_output=True,
        text=True,
        timeout=20 * PATIENCE,
    )
    assert made.returncode == 0, made.stderr
    printed = kubernetes(tmp_path / "cluster.toml", *IMAGE, "--tls", tmp_path / "tls")
    assert printed.returncode == 0, printed.stderr
    assert "cert.pem:" in printed.stdout and "ca.pem:" in printed.stdout
    assert "ca.key:" not in printed.stdout
