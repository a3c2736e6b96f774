"""A state folder is its user's alone: a cluster starts in no other, follows no link in it, and the commands believe
nothing that another user has put there.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import tempfile
from collections.abc import Callable

import pytest
from harness import GANGWAY, PATIENCE, Cluster, free_port

ANOTHER = 54321
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")


class State:
    """A state folder, a free port, and the folder of the cluster on it."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        self.port = free_port()
        self.folder = root / str(self.port)

    def run(
        self, command: str, *flags: str, user: int | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [
                str(GANGWAY),
                command,
                "--port",
                str(self.port),
                "--state-dir",
                str(self.root),
                *flags,
            ],
            env={**os.environ, "GANGWAY_CACHE_DIR": str(self.root / "none")},
            capture_output=True,
            text=True,
            timeout=30 * PATIENCE,
            user=user,
            cwd="/",
        )

    def refused(self, command: str, *flags: str) -> str:
        result = self.run(command, *flags)
        assert result.returncode == 1, result.stdout + result.stderr
        return result.stderr


@pytest.fixture
def state(tmp_path: pathlib.Path) -> State:
    (tmp_path / "state").mkdir(mode=0o700)
    return State(tmp_path / "state")


@needs_root
def test_a_cluster_starts_in_no_folder_of_another_user(state: State) -> None:
    state.folder.mkdir(mode=0o700)
    (state.folder / "up.pid").write_text(f"{os.getpid()}\n")  # `down` would end this process
    os.chown(state.folder, ANOTHER, ANOTHER)
    for command in (["up", "--detach"], ["up"], ["status"], ["down"], ["why"]):
        said = state.refused(*command)
        assert f"{state.folder} belongs to user {ANOTHER}" in said, said
        assert "GANGWAY_STATE_DIR" in said, said
    assert os.listdir(state.folder) == ["up.pid"]


@needs_root
def test_nor_in_one_that_another_user_can_replace(state: State) -> None:
    os.chown(state.root, ANOTHER, ANOTHER)
    assert f"{state.root} belongs to user {ANOTHER}" in state.refused("up", "--detach")
    os.chown(state.root, 0, 0)
    state.root.chmod(0o777)
    assert f"all users may write to {state.root}" in state.refused("up", "--detach")
    assert not state.folder.exists()


@needs_root
def test_links_that_another_user_planted_before_the_first_start_reach_nothing(
    tmp_path: pathlib.Path,
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    with tempfile.TemporaryDirectory() as root:  # others may enter it, unlike tmp_path
        os.chmod(root, 0o1777)  # as /tmp
        state = State(pathlib.Path(root))
        plant = f"mkdir -p {state.folder}/logs && ln -s {victim} {state.folder}/logs/up.log"
        subprocess.run(["sh", "-c", plant], check=True, user=ANOTHER, cwd="/")
        assert f"belongs to user {ANOTHER}" in state.refused("up", "--detach")
        assert "no cluster runs" in state.run("status", user=ANOTHER).stderr  # to its owner
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("name", ["lock", "logs", "logs/up.log", "logs/head.log"])
def test_no_link_in_the_folder_is_followed(state: State, tmp_path: pathlib.Path, name: str) -> None:
    victim = tmp_path / "victim"
    victim.mkdir() if name == "logs" else victim.write_text("precious")
    link = state.folder / name
    link.parent.mkdir(parents=True, mode=0o700)
    link.symlink_to(victim)
    said = state.refused("up", "--detach")
    assert f"{link} is a link" in said, said
    assert os.listdir(victim) == [] if name == "logs" else victim.read_text() == "precious"
    result = state.run("status")
    assert result.returncode == 1, result.stdout
    if name != "lock":
        assert "no cluster runs" in result.stderr, result.stderr


def test_a_link_in_place_of_the_folder_is_refused(state: State, tmp_path: pathlib.Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o755)
    state.folder.symlink_to(tmp_path / "elsewhere")
    for command in (["up", "--detach"], ["status"]):
        assert f"{state.folder} is a link" in state.refused(*command)
    assert (tmp_path / "elsewhere").stat().st_mode & 0o777 == 0o755
    assert os.listdir(tmp_path / "elsewhere") == []


@needs_root
def test_a_trace_is_not_written_through_a_link_of_another_user(
    cluster: Cluster, tmp_path: pathlib.Path
) -> None:
    victim, out = tmp_path / "victim", tmp_path / "trace.json"
    victim.write_text("precious")
    out.symlink_to(victim)
    os.chown(out, ANOTHER, ANOTHER, follow_symlinks=False)
    result = cluster.command("trace", "--out", str(out), "--port", str(cluster.port), timeout_s=20)
    assert result.returncode == 1 and f"{out} is a link of another user" in result.stderr, result
    assert victim.read_text() == "precious"


def test_what_a_cluster_keeps_is_its_users_alone(new_cluster: Callable[..., Cluster]) -> None:
    cluster = new_cluster(1, 1, 1).start()
    for path in [cluster.folder, *cluster.folder.rglob("*")]:
        about = path.stat()
        assert about.st_uid == os.geteuid(), path
        if not path.is_socket():
            assert about.st_mode & 0o077 == 0, (path, oct(about.st_mode))
