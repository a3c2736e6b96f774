"""The commands and the scripts that pages show are run as they are there: README.md, docs/start.md and guides. What
installs and builds is left out, what runs in an environment with the wheel, and examples that have tests of their own.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import shlex
import subprocess

import pytest
from harness import PATIENCE, PYTHON, ROOT, ends_with_this_process, free_port

pytestmark = pytest.mark.timeout(180)  # each starts a script or two
INSTALLS = ("make ", "tools/setup.sh ", "python3 -m venv ", "source ", "pip ")
NOT_RUN = (*INSTALLS, "gangway ")  # on the first pages, which use bin/gangway otherwise


def commands(page: str) -> list[str]:
    """The lines of the indented blocks of code."""
    text = re.sub(r"(?ms)^```.*?^```$", "", (ROOT / page).read_text())
    lines = [line[4:] for line in text.splitlines() if re.match(r" {4}[a-z]", line)]
    return [line for line in lines if not line.startswith(NOT_RUN)]


def fenced(page: str, language: str) -> str:
    found = re.findall(rf"(?ms)^```{language}\n(.*?)^```$", (ROOT / page).read_text())
    assert len(found) == 1, f"{page} has {len(found)} blocks of {language}"
    return str(found[0])


def run_all(lines: list[str], folder: pathlib.Path) -> dict[str, str]:
    """Command -> what it prints. Ends the cluster that they start, if they do not."""
    ends_with_this_process()
    environment = os.environ | {
        "GANGWAY_PORT": str(free_port()),
        "GANGWAY_STATE_DIR": str(folder / "state"),
        "GANGWAY_PYTHON": PYTHON,
        "PATH": f"{ROOT / 'bin'}:{os.environ['PATH']}",
    }
    for name in ("bin", "examples"):
        (folder / name).symlink_to(ROOT / name)
    told = {}
    try:
        for line in lines:
            ran = subprocess.run(
                ["bash", "-c", line],
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                timeout=150 * PATIENCE,
            )
            assert ran.returncode == 0, f"`{line}` exits with {ran.returncode}: {ran.stderr}"
            told[line.partition(" #")[0].strip()] = ran.stdout
    finally:
        down = ["bin/gangway", "down"]
        subprocess.run(down, cwd=folder, env=environment, capture_output=True, timeout=60)
    return told


def test_first_page(tmp_path: pathlib.Path) -> None:
    (tmp_path / "ten.py").write_text(fenced("README.md", "python"))
    told = run_all(commands("README.md"), tmp_path)
    assert told["bin/gangway run ten.py"] == fenced("README.md", "text")
    assert told["bin/gangway why"] == "nothing waits\n"


def test_start(tmp_path: pathlib.Path) -> None:
    told = run_all(commands("docs/start.md"), tmp_path)
    assert told["bin/gangway run examples/survive.py"].startswith("8 devices, 1 process\n")
    assert "island0/worker1" in told["bin/gangway status"]
    assert "traceEvents" in (tmp_path / "trace.json").read_text()
    assert "has ended" in told["bin/gangway down"]


# What `curl -s` does, which is not a package that the tests need.
GET = shlex.join(
    ["-c", "import sys, urllib.request as r; print(r.urlopen(sys.argv[1]).read().decode())"]
)


@dataclasses.dataclass
class Guide:
    """A page of docs/guides: its script's name, commands that are left out because other tests run them, and what a
    reader would wait for before a command, the first time.
    """

    page: str
    script: str
    left_out: tuple[str, ...] = ()
    waits: dict[str, str] = dataclasses.field(default_factory=dict)
    replaced: dict[str, str] = dataclasses.field(
        default_factory=dict
    )  # what may differ on this machine


GUIDES = [
    Guide("pipelines", "pipeline.py", left_out=("gangway run examples/", "gangway trace")),
    Guide(
        "elastic",
        "saved.py",
        waits={"gangway status": "grep -q 'step 20/' replicas.log"},
    ),
    Guide("from-multi-controller", "train.py"),
    Guide("from-pathways", "train.py"),
    Guide(
        "debugging",
        "stuck.py",
        waits={"gangway why": "gangway why | grep -q 'stands in'"},
        replaced={"9464": str(free_port()), "curl -s": f"{PYTHON} {GET}"},
    ),
]


def outputs(page: str) -> list[tuple[str, str]]:
    """Each command of the indented blocks, with the block `text` that follows its block, if it is the last one there."""
    found: list[tuple[str, str]] = []
    text = (ROOT / page).read_text()
    for block in re.finditer(r"(?ms)^```(\w+)\n(.*?)^```$|^    ([a-z][^\n]*)$", text):
        if block[3]:
            found.append((block[3], ""))
        elif block[1] == "text":
            found[-1] = (found[-1][0], block[2])
    return found


def assert_says(told: str, shown: str, command: str) -> None:
    """Each entry of `shown`, a line with the indented ones behind it, is in `told`, whatever its numbers are; `...` is
    the rest of a line.
    """
    for entry in re.split(r"\n(?! )", shown.strip()):
        words = [
            r"[\d.]+".join(map(re.escape, re.split(r"\d+(?:\.\d+)?", word)))
            for word in entry.split()
            if word != "..."
        ]
        assert re.search(r"\s+".join(words), told), f"`{command}` says\n{told}\nnot\n{entry}"


# `elastic` is nightly: its script takes as long as all others, and test_elastic.py runs the example that it is about.
@pytest.mark.parametrize(
    "guide",
    [
        pytest.param(guide, id=guide.page, marks=[pytest.mark.nightly] * (guide.page == "elastic"))
        for guide in GUIDES
    ],
)
def test_guide(guide: Guide, tmp_path: pathlib.Path) -> None:
    """All commands in one shell, because some go on in the background."""
    page = f"docs/guides/{guide.page}.md"
    (tmp_path / guide.script).write_text(fenced(page, "python"))
    pairs = [pair for pair in outputs(page) if not pair[0].startswith((*INSTALLS, *guide.left_out))]
    assert any(command.startswith("gangway up") for command, _ in pairs), (
        f"{page} starts no cluster"
    )
    lines = ["set -eo pipefail"]
    waits = dict(guide.waits)
    for number, (command, _) in enumerate(pairs):
        if condition := waits.pop(command.partition(" --")[0], None):
            lines.append(f"until {condition}; do sleep 0.1; done")
        lines.append(f"exec > {shlex.quote(str(tmp_path / str(number)))} 2>&1")
        lines.append(command)
    text = "\n".join(lines)
    for shown, here in guide.replaced.items():
        text = text.replace(shown, here)
    run_all([text], tmp_path)
    for number, (command, shown) in enumerate(pairs):
        assert_says((tmp_path / str(number)).read_text(), shown, command)


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_recording(tmp_path: pathlib.Path) -> None:
    """The session on the first page can be recorded again: the commands do what it shows."""
    ends_with_this_process()
    picture = tmp_path / "session.svg"
    subprocess.run(
        [str(ROOT / ".venv/bin/python"), str(ROOT / "tools/docs/recording.py"), str(picture)],
        check=True,
        timeout=500,
    )
    shown = re.sub(r"<[^>]*>", "", picture.read_text())
    for words in ("is silent", "DATA_LOSS", "back to step", "step 1000", "has ended"):
        assert words in shown
