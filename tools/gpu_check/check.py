"""Runs the steps of gpu_check.sh, each under a limit, and writes what they found after each one: OUT/gpu.md for people,
OUT/gpu.json, and OUT/logs.tar.gz with all that the processes said.

A step yields rows: what was looked at, what was seen, and whether that is as it should be (`ok`), a loss that is known
by a clear refusal (`refused`), or a failure (`FAILED`).
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

CLIENT = pathlib.Path(__file__).with_name("client.py")
LOG_BYTES_MAX = 2 << 20  # of each log
CLIENTS_S = 40.0  # of clients at once, with their compiles
# JAX goes on without the GPU where that fails, so the client checks what it got.
IN_PROCESS = {"JAX_PLATFORMS": "cuda,cpu", "GANGWAY_CHECK_BACKEND": "gpu"}
NO_CASE = "the script"  # ended before its first case
# What the client of that door lacks on any device.
IFRT_LEFT_OUT = (
    "a_callback_that_raises",
    "a_serialized_program",
    "debug_print",
    "many_callbacks",
    "profiler",
    "pure_callback",
    "what_memory_says",
)


@dataclasses.dataclass
class Row:
    step: str
    what: str
    seen: str
    verdict: str  # ok, refused, FAILED


class NoClusterError(Exception):
    """`gangway up` failed, with these words."""


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


class Check:
    def __init__(self, kit: pathlib.Path, out: pathlib.Path, plugin: str) -> None:
        self.kit, self.out, self.plugin = kit, out, plugin
        self.rows: list[Row] = []
        self.seconds: dict[str, float] = {}
        self.port = free_port()
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="gangway-gpu-"))
        self.logs = self.work / "logs"
        self.logs.mkdir()
        site = self.work / "site"
        self.gangway = site / "bin" / "gangway"
        self.environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")])),
            "GANGWAY_STATE_DIR": str(self.work / "state"),
            "GANGWAY_PORT": str(self.port),
            "PYTHONUNBUFFERED": "1",
        }
        cuda = pathlib.Path("/usr/local/cuda")
        if cuda.exists():
            flags = [os.environ.get("XLA_FLAGS"), f"--xla_gpu_cuda_data_dir={cuda}"]
            self.environment["XLA_FLAGS"] = " ".join(filter(None, flags))
        self.values: dict[str, dict[str, dict[str, Any]]] = {}
        self.speeds: dict[str, dict[str, dict[str, Any]]] = {}

    # --- What steps use ---

    def row(self, what: str, seen: object, verdict: str = "ok") -> None:
        self.rows.append(Row(self.step, what, str(seen), verdict))

    def expect(self, what: str, seen: object, holds: bool) -> None:
        self.row(what, seen, "ok" if holds else "FAILED")

    def run(
        self,
        name: str,
        command: list[object],
        limit_s: float,
        **environment: str,
    ) -> tuple[int | None, str]:
        """The exit status (None: it took too long, and its process group was killed) and what it said, which is kept."""
        path = self.logs / f"{name}.log"
        with path.open("ab") as log:
            try:
                process = subprocess.Popen(
                    list(map(str, command)),
                    env={**self.environment, **environment},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except FileNotFoundError as error:
                return 127, str(error)
            try:
                status: int | None = process.wait(limit_s)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                status = None
        return status, path.read_text(errors="replace")

    def cluster_command(self, *arguments: object, limit_s: float = 40) -> tuple[int | None, str]:
        name = f"{len(list(self.logs.iterdir())):03d}-{arguments[0]}"
        return self.run(name, [self.gangway, *arguments], limit_s)

    @contextlib.contextmanager
    def cluster(self, *options: object) -> Iterator[None]:
        status, said = self.cluster_command(
            "up",
            "--detach",
            "--plugin",
            self.plugin,
            "--port",
            self.port,
            "--ready-limit",
            60,
            *options,
            limit_s=70,
        )
        if status != 0:
            self.keep_logs()
            took = "took too long" if status is None else f"ended with {status}"
            raise NoClusterError(f"{took}: {said.split('gangway up: ')[-1][:1500]}")
        try:
            yield
        finally:
            self.cluster_command("down")
            self.keep_logs()

    def keep_logs(self) -> None:
        for path in (self.work / "state").rglob("*.log"):
            data = path.read_bytes()[-LOG_BYTES_MAX:]
            (self.logs / f"{self.step}-{path.name}".replace(" ", "_").replace(",", "")).write_bytes(
                data
            )

    def client(
        self, name: str, part: str, *arguments: object, door: str = "", limit_s: float = 60
    ) -> list[dict[str, Any]]:
        """What client.py wrote, through a door of the cluster, or in-process."""
        found = self.work / f"{name}.jsonl"
        script = [CLIENT, part, found, *arguments]
        command = (
            [self.gangway, "run", "--door", door, *script] if door else [sys.executable, *script]
        )
        local = {} if door or self.plugin != "cuda" else IN_PROCESS
        status, said = self.run(name, command, limit_s, **local)
        lines = found.read_text().splitlines() if found.exists() else []
        results = [json.loads(line) for line in lines]
        if status != 0:
            begun = [each["case"] for each in results if each["part"] == "begun"]
            where = f" in {begun[-1]}" if begun else ""
            results.append(
                {
                    "part": "ended",
                    "case": begun[-1] if begun else "",
                    "text": f"ended with {status}{where}: {said[-600:]}",
                }
            )
        return results

    def rows_of(self, results: list[dict[str, Any]]) -> None:
        for each in results:
            if each["part"] == "value":
                self.row(each["case"], ", ".join(map(str, each["value"]))[:600])
            elif each["part"] == "said":
                self.row(each["case"], each["text"])
            elif each["part"] in ("error", "ended"):
                self.row(each["case"], each["text"], verdict_of_error(each))

    # --- Steps ---

    def versions(self) -> None:
        wheels = list(self.kit.glob("*.whl"))
        status, said = self.run(
            "install",
            [
                sys.executable,
                "-m",
                "pip",
                "install",
                "-q",
                "--no-index",
                "--no-deps",
                "--no-compile",
                "--target",
                self.work / "site",
                *wheels,
            ],
            60,
        )
        self.expect(
            "the wheels are installed",
            ", ".join(wheel.name for wheel in wheels) or said,
            status == 0,
        )
        status, said = self.run(
            "gpus",
            ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"],
            20,
        )
        self.expect("GPUs", said.strip(), status == 0 or self.plugin != "cuda")
        _, said = self.run(
            "versions",
            [
                sys.executable,
                "-c",
                "import sys, os, jax, jaxlib, numpy; print(sys.version.split()[0], 'jax', jax.__version__, 'jaxlib',"
                " jaxlib.__version__, 'numpy', numpy.__version__, os.confstr('CS_GNU_LIBC_VERSION'), os.cpu_count(), 'cores')",
            ],
            30,
        )
        self.row("Python", said.strip().splitlines()[-1])
        status, said = self.cluster_command("version")
        self.expect("Gangway", said.strip(), status == 0)

    def plugin_path(self) -> str:
        if self.plugin != "cuda":
            return self.plugin
        _, said = self.cluster_command("doctor", "--plugin", self.plugin)
        found = re.search(r"\S+xla_cuda_plugin\.so", said)
        if not found:
            raise RuntimeError(f"doctor does not find the plugin: {said}")
        return found.group()

    def conformance(self) -> None:
        """Each test in a process of its own: one that hangs or crashes says nothing of the others."""
        suite = [self.kit / "gangway_conformance", "--plugin", self.plugin_path()]
        _, said = self.run("conformance-list", [*suite, "--gtest_list_tests"], 30)
        group, verdicts = "", dict[str, list[str]]()
        for line in said.splitlines():
            if re.fullmatch(r"\S+\.( .*)?", line):
                group = line.split()[0]
            elif group and re.match(r"  \S", line):
                test = group + line.split()[0]
                status, said = self.run(
                    f"conformance-{len(verdicts)}-{test.replace('/', '-')}",
                    [*suite, f"--gtest_filter={test}"],
                    25,
                )
                if not verdicts and "[ RUN      ]" not in said:  # it ends before its first test
                    self.row("the plugin opens", said.strip()[-1500:], "FAILED")
                    return
                skipped = "[  SKIPPED ] 1 test" in said
                verdict = "skipped" if skipped else "passed" if status == 0 else "failed"
                verdicts.setdefault(verdict, []).append(test)
                if verdict == "failed":
                    text = said.split(f"[ RUN      ] {test}\n")[-1]
                    self.row(
                        test, f"{'too long' if status is None else status}: {text[-700:]}", "FAILED"
                    )
        for verdict, tests in verdicts.items():
            self.row(f"{len(tests)} tests {verdict}", ", ".join(tests))
        self.expect("the suite ran", f"{sum(map(len, verdicts.values()))} tests", bool(verdicts))

    def pjrt_conformance(self) -> None:
        if not list(self.kit.glob("pypjrt*")):
            self.row("pypjrt", "not in the kit")
            return
        status, said = self.run(
            "pypjrt",
            [sys.executable, "-m", "pypjrt.conform", self.plugin_path()],
            40,
        )
        self.row("pypjrt on the plugin", said[-1500:], "ok" if status == 0 else "FAILED")

    def all_values(
        self, name: str, door: str, left_out: tuple[str, ...] = (), limit_s: float = 90
    ) -> None:
        found: dict[str, dict[str, Any]] = {}
        until = time.monotonic() + limit_s
        for turn in range(6):
            done = [case for case in found if case != NO_CASE] + list(left_out)
            results = self.client(
                f"values-{name}-{turn}",
                "values",
                *done,
                door=door,
                limit_s=max(until - time.monotonic(), 5),
            )
            for each in results:
                if each["part"] in ("value", "error", "ended"):
                    found[each["case"] or NO_CASE] = each
                elif each["part"] == "said":
                    found[f"said: {each['case']}"] = each
            ended = [each for each in results if each["part"] == "ended"]
            if not ended or not ended[0]["case"] or time.monotonic() > until:
                break
        self.values[name] = found

    def in_process(self) -> None:
        self.all_values("in-process", "")
        for name, each in self.values["in-process"].items():
            if each["part"] in ("error", "ended"):
                none = name == NO_CASE
                text = each["text"][-400:] if none else each["text"][:400]
                self.row(name, text, "FAILED" if none else "in-process")
            elif each["part"] == "said":
                self.row(name, each["text"][:400])
        self.measure("in-process", "")

    def measure(self, name: str, door: str) -> None:
        results = self.client(f"speeds-{name}", "speeds", door=door, limit_s=100)
        self.speeds[name] = {each["what"]: each for each in results if each["part"] == "speed"}
        for each in results:
            if each["part"] == "ended":
                self.row(f"speeds {name}", each["text"], "FAILED")
            elif each["part"] == "said":
                self.row(each["case"], each["text"])
        for what, each in self.speeds[name].items():
            theirs = self.speeds.get("in-process", {}).get(what)
            ratio = ""
            if theirs and name != "in-process":
                faster = each["value"] / theirs["value"]
                ratio = f"; in-process {theirs['value']:.4g}; speed {faster if '/s' in each['unit'] else 1 / faster:.3f}"
            self.row(what, f"{each['value']:.4g} {each['unit']}{ratio}")

    def compare(self, name: str) -> None:
        theirs = self.values.get("in-process", {})
        for case, each in self.values[name].items():
            local = theirs.get(case, {})
            if each["part"] == "said":
                self.row(case, each["text"])
            elif each["part"] != "value":
                known = local.get("part") not in ("value", None)
                self.row(
                    case, each["text"][:700], "in-process" if known else verdict_of_error(each)
                )
            elif case.startswith("what_"):
                self.row(case, f"{each['value']} (in-process {local.get('value')})")
            else:
                same = each["value"] == local.get("value")
                near = same or close(each["value"], local.get("value"))
                took = f"{each['seconds']:.1f} s, in-process {local.get('seconds', 0):.1f}"
                words = (
                    "the same bits"
                    if same
                    else "near"
                    if near
                    else f"{str(each['value'])[:200]} instead of {str(local.get('value'))[:200]}"
                )
                self.row(case, f"{words} ({took})", "ok" if near else "FAILED")

    def one_worker_pjrt(self) -> None:
        with self.cluster("--devices", 1):
            self.all_values("pjrt", "pjrt")
            self.compare("pjrt")
            _, said = self.cluster_command("status")
            self.row("status", said.strip())

    def one_worker_speeds(self) -> None:
        with self.cluster("--devices", 1):
            self.measure("pjrt", "pjrt")

    def one_worker_ifrt(self) -> None:
        with self.cluster("--devices", 1):
            self.all_values("ifrt", "ifrt", IFRT_LEFT_OUT, 60)
            self.compare("ifrt")

    def two_workers(self) -> None:
        share = ["--device-memory-fraction", 0.35] if self.plugin == "cuda" else []
        with self.cluster("--workers", 2, *share):
            self.rows_of(self.client("two", "two_workers", self.gangway, door="pjrt", limit_s=80))

    def over_budget(self) -> None:
        with self.cluster("--memory", "512MB"):
            self.rows_of(self.client("budget", "over_budget", door="pjrt", limit_s=40))

    def two_clients(self) -> None:
        with self.cluster("--devices", 1):
            alone, both = self.clients("alone", 1), self.clients("both", 2)
            self.row("products per second: alone; two clients", f"{alone}; {both}")
            commands: list[list[object]] = [
                ["why"],
                ["trace", "--out", self.out / "trace.json"],
                ["doctor", "--plugin", self.plugin],
            ]
            for command in commands:
                status, said = self.cluster_command(*command)
                self.expect(str(command[0]), said.strip()[-900:], status == 0)

    def clients(self, name: str, count: int) -> list[float]:
        """What each of `count` scripts reaches, which begin together once all of them have compiled."""
        running: list[subprocess.Popen[str]] = []

        def end() -> None:
            for process in running:
                process.kill()

        limit = threading.Timer(CLIENTS_S, end)
        with contextlib.ExitStack() as stack:
            for i in range(count):
                log = stack.enter_context((self.logs / f"client-{name}-{i}.log").open("wb"))
                process = subprocess.Popen(
                    list(map(str, [self.gangway, "run", CLIENT, "products", os.devnull])),
                    env=self.environment,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                )
                running.append(stack.enter_context(process))
            stack.callback(limit.cancel)
            limit.start()
            said = [process.stdout.readline() for process in running if process.stdout]
            if said == ["ready\n"] * count:
                for process in running:
                    assert process.stdin
                    process.stdin.write("go\n")
                    process.stdin.flush()
                said = [process.stdout.readline() for process in running if process.stdout]
        return [round(float(each), 1) for each in said]

    # --- All of them ---

    def all(self, chosen: list[str]) -> int:
        steps: list[tuple[str, Callable[[], None]]] = [
            ("versions", self.versions),
            ("conformance", self.conformance),
            ("in-process JAX", self.in_process),
            ("one worker by pjrt", self.one_worker_pjrt),
            ("speeds", self.one_worker_speeds),
            ("two workers on one GPU", self.two_workers),
            ("over budget", self.over_budget),
            ("two clients", self.two_clients),
            ("one worker by ifrt", self.one_worker_ifrt),
            ("pypjrt", self.pjrt_conformance),
        ]
        for self.step, run in steps:
            if chosen and self.step not in chosen:
                continue
            began = time.monotonic()
            try:
                run()
            except NoClusterError as error:
                self.row("gangway up", error, "FAILED")
            except Exception:  # noqa: BLE001  (the next step runs)
                self.row("the step", traceback.format_exc()[-1500:], "FAILED")
            self.seconds[self.step] = time.monotonic() - began
            print(f"{self.step}: {self.seconds[self.step]:.1f} s", flush=True)
            self.write()
        shutil.rmtree(self.work, ignore_errors=True)
        for row in self.rows:
            if row.verdict == "FAILED":
                print(f"FAILED {row.step}: {row.what}: {row.seen[:300]}")
        return 1 if any(row.verdict == "FAILED" for row in self.rows) else 0

    def write(self) -> None:
        lines = ["| step | what | seen | |", "|---|---|---|---|"]
        for row in self.rows:
            seen = " ".join(row.seen.replace("|", "\\|").split())
            lines.append(f"| {row.step} | {row.what} | {seen} | {row.verdict} |")
        took = ", ".join(f"{step} {seconds:.0f} s" for step, seconds in self.seconds.items())
        (self.out / "gpu.md").write_text("\n".join([*lines, "", f"Took: {took}.", ""]))
        whole = {
            "rows": [dataclasses.asdict(row) for row in self.rows],
            "seconds": self.seconds,
            "speeds": self.speeds,
        }
        (self.out / "gpu.json").write_text(json.dumps(whole, indent=1))
        with tarfile.open(self.out / "logs.tar.gz", "w:gz") as tar:
            tar.add(self.logs, "logs")


def verdict_of_error(result: dict[str, Any]) -> str:
    """A refusal says by name what is not served; all else is a failure."""
    refused = re.search(
        r"UNIMPLEMENTED|not supported|does not support|is not available", result["text"]
    )
    return "refused" if refused and result["part"] == "error" else "FAILED"


def close(ours: Any, theirs: Any, tolerance: float = 2e-2) -> bool:
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(close, ours, theirs))
    if isinstance(ours, int | float) and isinstance(theirs, int | float):
        return abs(ours - theirs) <= tolerance * max(1.0, abs(theirs))
    return bool(ours == theirs)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--kit", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--plugin", required=True)
    parser.add_argument("--steps", default="", help="names, with commas between them; default: all")
    options = parser.parse_args()
    chosen = list(filter(None, options.steps.split(",")))
    sys.exit(Check(options.kit, options.out, options.plugin).all(chosen))
