"""Records docs/images/session.svg, the terminal on the first page: `make recording`.

It runs what it shows: a cluster of its own, a script on it, and a worker that is first stopped and then killed. Two
panels are two terminals: one has the script, the other the commands. Times are those of the run, with pauses cut to
PAUSE_S. The picture is animated by CSS; where nothing moves (prefers-reduced-motion, a viewer without CSS), it shows
the whole session. Fails if a command does, or does not say what the page promises of it. Ends what it started.
"""

from __future__ import annotations

import argparse
import html
import json
import os
import pathlib
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
COLUMNS, LINE, CHARACTER = 104, 17, 7.25  # the last two in pixels
PAUSE_S, HOLD_S = 1.4, 9.0
WAIT_S = 120.0
STYLE = """
  .bar { fill: #2d333b } .panel { fill: #161b22; stroke: #444c56 }
  text { font: 12px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
         white-space: pre; fill: #c9d1d9 }
  .title { fill: #9ea7b3 } .command { fill: #ffffff; font-weight: bold } .prompt { fill: #56d364 }
  .name { fill: #ffa657 }
"""


class Terminal:
    """What one terminal shows: lines with the times at which they came. Thread-safe."""

    def __init__(self, title: str, began: float):
        self.title = title
        self.began = began
        self.lines: list[tuple[float, str, str]] = []  # seconds, class, text
        self.changed = threading.Condition()  # guards `lines`

    def show(self, kind: str, text: str, moment: float) -> None:
        at = moment - self.began
        indent = "  " if kind == "command" else ""
        with self.changed:
            for part in textwrap.wrap(text, COLUMNS - 2, subsequent_indent=indent) or [""]:
                self.lines.append((at, kind, part))
            self.changed.notify_all()

    def text(self) -> str:
        with self.changed:
            return "\n".join(text for _, _, text in self.lines)

    def wait_for(self, what: str) -> bool:
        """Until the text matches; false after WAIT_S."""
        with self.changed:
            return self.changed.wait_for(lambda: re.search(what, self.text()) is not None, WAIT_S)


class Session:
    """The cluster, in a state folder of its own, and the two terminals."""

    def __init__(self, folder: str):
        began = time.monotonic()
        self.script, self.operator = Terminal("the script", began), Terminal("the cluster", began)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.environment = os.environ | {
            "GANGWAY_PORT": str(port),
            "GANGWAY_STATE_DIR": folder,
            "GANGWAY_PYTHON": os.environ.get("GANGWAY_PYTHON", str(ROOT / ".venv/bin/python")),
            "PATH": f"{ROOT / 'bin'}:{os.environ['PATH']}",
        }

    def output_of(self, command: str) -> str:
        words = shlex.split(command, comments=True)
        ran = subprocess.run(
            words,
            cwd=ROOT,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        if ran.returncode:
            raise SystemExit(f"recording: `{command}` exits with {ran.returncode}: {ran.stdout}")
        return ran.stdout

    def run(self, command: str, promise: str = "", within_s: float = 0) -> None:
        """Shows a command and its output, which has to match `promise`: of the first run in this time that does."""
        until = time.monotonic() + within_s
        while True:
            began = time.monotonic()
            told = self.output_of(command)
            if re.search(promise, told):
                break
            if began >= until:
                raise SystemExit(f"recording: `{command}` does not say {promise!r}: {told}")
        self.operator.show("command", f"$ {command}", began)
        for line in told.splitlines():
            self.operator.show("output", line, time.monotonic())

    def start(self, command: str) -> subprocess.Popen[str]:
        """Shows a command in the script's terminal, and its output as it comes."""
        self.script.show("command", f"$ {command}", time.monotonic())
        process = subprocess.Popen(
            shlex.split(command),
            cwd=ROOT,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

        def read() -> None:
            assert process.stdout
            for line in process.stdout:
                self.script.show("output", line.rstrip("\n"), time.monotonic())

        threading.Thread(target=read, daemon=True).start()
        return process

    def wait_for(self, what: str) -> None:
        """Until the script has printed what matches."""
        if not self.script.wait_for(what):
            raise SystemExit(f"recording: {what!r} did not come: {self.script.text()}")

    def worker_pid(self, index: int) -> int:
        status = json.loads(self.output_of("gangway status --json"))
        return int(status["islands"][0]["workers"][index]["pid"])


def record(session: Session) -> None:
    script: subprocess.Popen[str] | None = None
    try:
        session.run("gangway up --workers 2 --devices 4 --detach", "ready: 8 devices")
        script = session.start("gangway run examples/survive.py")
        session.wait_for("step 500")
        pid = session.worker_pid(1)
        session.run(f"kill -STOP {pid}    # a worker hangs")
        # It is silent after 1.5 s, and dead after 5.
        session.run("gangway why", "survive.py.*stands in collective.*island0/worker1.*silent", 10)
        session.run(f"kill -9 {pid}       # and now it is dead")
        session.wait_for(r"DATA_LOSS(?s:.*)back to step(?s:.*)step \d+")
        if script.wait(WAIT_S):
            raise SystemExit(f"recording: the script failed: {session.script.text()}")
        session.wait_for("step 1000")
        session.run("gangway down", "has ended")
    finally:
        if script and script.poll() is None:
            script.kill()
            script.wait()
        subprocess.run(
            ["gangway", "down"], env=session.environment, capture_output=True, timeout=WAIT_S
        )


def paced(terminals: list[Terminal]) -> dict[float, float]:
    """Time of a line -> when the picture shows it: pauses are cut, and nothing comes before what came before it."""
    shown, at, last = {}, 0.0, 0.0
    for moment in sorted({line[0] for terminal in terminals for line in terminal.lines}):
        at += min(moment - last, PAUSE_S)
        shown[moment], last = at, moment
    return shown


def svg(terminals: list[Terminal]) -> str:
    times = paced(terminals)
    total = max(times.values()) + HOLD_S
    width = round(COLUMNS * CHARACTER) + 28
    rules, body, top = [], [], 0
    for number, terminal in enumerate(terminals):
        height = 34 + LINE * len(terminal.lines) + 12
        body.append(
            f'<rect class="panel" x=".5" y="{top + 0.5}" width="{width - 1}" height="{height}" rx="7"/>'
            f'<path class="bar" d="M1 {top + 8}a7 7 0 0 1 7 -7h{width - 16}a7 7 0 0 1 7 7v18h-{width - 2}z"/>'
            f'<text class="title" x="14" y="{top + 18}">{terminal.title}</text>'
        )
        for index, (moment, kind, text) in enumerate(terminal.lines):
            name, percent = f"l{number}_{index}", 100 * times[moment] / total
            rules.append(
                f"@keyframes {name} {{ 0%, {percent:.2f}% {{ opacity: 0 }} {percent + 0.01:.2f}%, 100% {{ opacity: 1 }} }}"
            )
            body.append(
                f'<text class="{kind}" style="animation-name: {name}" x="14" '
                f'y="{top + 46 + LINE * index}">{marked(kind, text)}</text>'
            )
        top += height + 10
    moving = f"@media (prefers-reduced-motion: no-preference) {{ .command, .output {{ animation: {total:.1f}s infinite }} }}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {top - 9}" width="{width}" role="img">\n'
        "<title>A terminal: a cluster is started, a script runs on it, one of its workers hangs and is killed, and the"
        " script goes on</title>\n"
        f"<style>{STYLE}  {moving}\n  "
        + "\n  ".join(rules)
        + "\n</style>\n"
        + "\n".join(body)
        + "\n</svg>\n"
    )


def marked(kind: str, text: str) -> str:
    """A line as SVG: the prompt and names of workers have colours of their own."""
    escaped = html.escape(text, quote=False)
    if kind == "command":
        return escaped.replace("$", '<tspan class="prompt">$</tspan>', 1)
    return re.sub(r"island\d+/worker\d+|DATA_LOSS", r'<tspan class="name">\g<0></tspan>', escaped)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "out", type=pathlib.Path, nargs="?", default=ROOT / "docs/images/session.svg"
    )
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends the cluster, too
    with tempfile.TemporaryDirectory() as folder:
        session = Session(folder)
        record(session)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(svg([session.operator, session.script]))
    print(f"recording: {arguments.out}")


if __name__ == "__main__":
    main()
