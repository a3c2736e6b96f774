"""A C++ program on the client library's public headers: examples/cpp_client."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

from harness import PATIENCE, ROOT, Cluster
from native_programs import native

HEADERS = ROOT / "gangway" / "client" / "include"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(native("cpp_client", "examples")), *arguments],
        capture_output=True,
        text=True,
        timeout=40 * PATIENCE,
    )


def test_a_cpp_program_computes_and_leaves_nothing(new_cluster: Callable[..., Cluster]) -> None:
    cluster = new_cluster(1, 1, 2).start()

    def compute() -> None:
        ran = run(cluster.control, cluster.token)
        assert ran.returncode == 0, ran.stderr
        lines = ran.stdout.splitlines()
        assert lines[:2] == ["2 devices of platform cpu", "x * x = 1 4 9 16 25 36"]
        assert (
            lines[2].startswith("of a deleted array: ") and "not known in this session" in lines[2]
        )

    with cluster.left_as_found(compute):
        compute()


def test_a_wrong_token_and_a_missing_cluster_are_errors(cluster: Cluster) -> None:
    refused = run(cluster.control, "0" * 32)
    assert refused.returncode == 1 and "token" in refused.stderr
    missing = run("unix:/nowhere/control.sock", "0" * 32)
    assert missing.returncode == 1 and "/nowhere/control.sock" in missing.stderr


def test_the_public_headers_show_no_other_library() -> None:
    """They stand alone, and what they include is the standard library's."""
    for header in sorted((HEADERS / "gangway").glob("*.h")):
        made = subprocess.run(
            ["c++", "-std=c++20", "-E", "-x", "c++", "-I", str(HEADERS), str(header)],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert made.returncode == 0, made.stderr
        files = {line.split('"')[1] for line in made.stdout.splitlines() if line.startswith("# 1 ")}
        for other in ("absl", "google", "grpc", "gangway/transport", "gangway/wire"):
            assert not [file for file in files if other in file], (header, other)
