"""Programs that try to touch, slow down or outlive other sessions (hostile/README.md): each is refused by name, or does no
harm. Beside them another session holds arrays on the same devices and computes there. One run of all programs on each
of three clusters; each program is a test, which reads what became of it.

After a run, `outcomes.txt` in the folder of the test has a line for each program.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import secrets
import selectors
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from harness import PATIENCE, Cluster, wait_for
from hostile import (
    bombs,
    calls,
    collectives,
    corners,
    graphs,
    malformed,
    operations,
    shapes,
    sorts,
    structure,
)
from hostile.case import BOUNDED, FAILS, HARMLESS, PROGRAMS, REFUSED, RUNS, Case, from_file
from native_programs import native

pytestmark = [pytest.mark.alone, pytest.mark.timeout(300)]
ANSWER_S = 1.0  # what other sessions are promised
ORPHAN_S = 2
STEPS_MIN = 5  # of the other session, so that it has been there
BACK_S = 30  # until a process that has ended is back
LATE = 4  # DEADLINE_EXCEEDED
REFUSALS = {3, 8, 12}  # INVALID_ARGUMENT, RESOURCE_EXHAUSTED, UNIMPLEMENTED
SPANNING = collectives.CASES
ALONE = [
    *(case for path in sorted(PROGRAMS.glob("*.mlir")) for case in from_file(path)),
    *calls.CASES,
    *operations.CASES,
    *structure.CASES,
    *shapes.CASES,
    *graphs.CASES,
    *sorts.CASES,
    *corners.CASES,
    *malformed.CASES,
    *bombs.CASES,
]
# By the name of a cluster: how it is started, and what runs there. The devices of the second are two workers', so its
# programs of several devices span them; the third has XLA's collectives, which its programs reach.
CLUSTERS: dict[str, tuple[list[Any], list[Case]]] = {
    "one-worker": ([1, 1, 8], ALONE + SPANNING + collectives.DIVERGING),
    "two-workers": ([1, 2, 2], SPANNING + collectives.DIVERGING),
    "xla-collectives": ([1, 1, 4, "--collectives", "xla"], SPANNING),
}
PAIRS = [(name, case) for name, (_, cases) in CLUSTERS.items() for case in cases]


class Lines:
    """A client process that answers by lines of JSON."""

    def __init__(self, cluster: Cluster, mode: str, secret: str) -> None:
        self._process = subprocess.Popen(
            [str(native("hostile_client")), mode, cluster.control, cluster.token, secret],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdin and self._process.stdout
        self._in, self._out = self._process.stdin, self._process.stdout
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._out, selectors.EVENT_READ)
        self._rest = b""

    def send(self, line: dict[str, Any]) -> None:
        self._in.write(json.dumps(line).encode() + b"\n")
        self._in.flush()

    def receive(self, timeout_s: float) -> dict[str, Any] | None:
        """The next line; none within the time, or at the end: None."""
        while b"\n" not in self._rest:
            if not self._selector.select(timeout_s * PATIENCE):
                return None
            data = os.read(self._out.fileno(), 1 << 16)
            if not data:
                return None
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def until_end(self, timeout_s: float) -> list[dict[str, Any]]:
        """Closes its stdin; all further lines."""
        self._in.close()
        lines = []
        while (line := self.receive(timeout_s)) is not None:
            lines.append(line)
        return lines

    def close(self) -> None:
        self._process.kill()
        self._process.wait(10 * PATIENCE)
        self._out.close()
        with contextlib.suppress(BrokenPipeError):
            self._in.close()


@dataclasses.dataclass
class Outcome:
    """What became of a program, and of others during its run."""

    stage: str
    code: int
    message: str
    ran: bool
    leaked: bool
    begin: float
    end: float
    ended: list[str]  # roles whose process was another one after the program
    felt: list[dict[str, Any]] = dataclasses.field(default_factory=list)  # by the other session

    def problems(self, case: Case) -> list[str]:
        found = []
        compiled = self.stage not in ("compile", "connect")
        refused = not compiled and self.code in REFUSALS
        if case.expect == REFUSED and not (refused and case.words.lower() in self.message.lower()):
            found.append(f"it is not refused with the words {case.words!r}")
        if case.expect == FAILS and (compiled or self.code == 0):
            found.append("it compiles")
        if case.expect == RUNS and (self.stage, self.code) != ("fetch", 0):
            found.append("it does not run")
        if self.stage == "connect":
            found.append("its session is lost")
        if self.code == LATE and "the test's limit" in self.message:
            found.append("it is late")
        allowed = {"compiler"} if case.expect == BOUNDED else set()
        if ended := [role for role in self.ended if role not in allowed]:
            found.append(f"it ended: {', '.join(ended)}")
        if self.leaked:
            found.append("its results hold another session's bytes")
        found += [f"another session: {event}" for event in self.felt]
        return found


class Run:
    """All programs of one cluster, one after the other, beside the victim."""

    def __init__(self, name: str, folder: pathlib.Path) -> None:
        self._arguments, cases = CLUSTERS[name]
        # What may end a compiler process comes last, so that no other program waits for a new one.
        self._cases = sorted(cases, key=lambda case: case.expect == BOUNDED)
        self._folder = folder
        self._file = folder / "outcomes.txt"
        self._secret = secrets.token_hex(8)
        self._pids: dict[str, int] = {}
        self.outcomes: dict[str, Outcome] = {}
        self.summary: dict[str, Any] = {}
        self.elsewhere: list[dict[str, Any]] = []  # what the victim felt during no program

    def all(self) -> Run:
        cluster = Cluster(*self._arguments)
        cluster.compiles_for_itself()
        try:
            cluster.start()
            with contextlib.closing(Lines(cluster, "victim", self._secret)) as victim:
                ready = victim.receive(60)
                assert ready and ready["event"] == "ready" and ready["prepared"], ready
                with contextlib.closing(Lines(cluster, "programs", self._secret)) as client:
                    for case in self._cases:
                        self.outcomes[case.name] = self._do(cluster, client, case)
                        self._write([case])
                self._attribute(victim.until_end(60))
        finally:
            cluster.stop()
        self._file.unlink()
        self._write(self._cases)
        with self._file.open("a") as file:
            file.write(f"{self.summary} {self.elsewhere}\n")
        return self

    def _do(self, cluster: Cluster, client: Lines, case: Case) -> Outcome:
        before = self._processes(cluster)
        client.send(job(case, self._folder, range(case.devices)))
        line = client.receive(3 * case.limit_s + BACK_S)
        assert line, f"the client of hostile programs ended, or is late, at {case.name}"
        assert line.pop("name") == case.name
        ended = [name for name, pid in before.items() if not alive(pid)]
        return Outcome(**line, ended=ended)

    def _processes(self, cluster: Cluster) -> dict[str, int]:
        """Pids by role, once each is there; asks for them only when one has ended."""
        if self._pids and all(map(alive, self._pids.values())):
            return self._pids

        def all_up() -> dict[str, int]:
            status = cluster.status()
            roles = [status["compiler"], *(w for i in status["islands"] for w in i["workers"])]
            if any(role["state"] != "up" for role in roles):
                return {}
            return {
                "head": cluster.head_pid,
                "compiler": status["compiler"]["pid"],
                **{w["name"]: w["pid"] for i in status["islands"] for w in i["workers"]},
            }

        self._pids = wait_for("every process back", all_up, BACK_S)
        return self._pids

    def _attribute(self, events: list[dict[str, Any]]) -> None:
        """Gives each event to the program that ran when it was seen, or began: a late answer began before."""
        for event in events:
            if event["event"] == "end":
                self.summary = event
                continue
            began = event["at"] - event.get("ms", 0) / 1000
            for outcome in self.outcomes.values():
                if began <= outcome.end and outcome.begin <= event["at"]:
                    outcome.felt.append(event)
                    break
            else:
                self.elsewhere.append(event)

    def _write(self, cases: list[Case]) -> None:
        """Appends what is known of these, for people."""
        with self._file.open("a") as file:
            for case in cases:
                seen = self.outcomes[case.name]
                problems = "; ".join(seen.problems(case)) or "as expected"
                milliseconds = 1000 * (seen.end - seen.begin)
                file.write(
                    f"{case.name}\t{case.expect} {case.words}\t{seen.stage} {seen.code} "
                    f"{milliseconds:.0f} ms\t{problems[:300]}\t{seen.message[:200]!r}\n"
                )


def job(case: Case, folder: pathlib.Path, devices: Sequence[int]) -> dict[str, Any]:
    """What the client of hostile programs is told; the program becomes a file of the folder."""
    path = folder / f"program-{devices[0]}"
    path.write_bytes(case.data)
    return {
        "name": case.name,
        "path": str(path),
        "format": case.format,
        "options": case.options().hex(),
        "devices": list(devices),
        "run": case.run,
        "alone": case.expect == BOUNDED,
        "arguments": case.arguments,
        "fill": case.fill,
        "limit_ms": int(case.limit_s * 1000),
    }


def alive(pid: int) -> bool:
    """Whether the process exists and has not ended."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


Runs = Callable[[str], Run]


@pytest.fixture(scope="module")
def run_of(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """The run on the cluster with a name, made for the first test that asks. One that failed is not repeated."""
    made: dict[str, Run | BaseException] = {}

    def run(name: str) -> Run:
        if name not in made:
            try:
                made[name] = Run(name, tmp_path_factory.mktemp(f"hostile-{name}")).all()
            except Exception as error:
                made[name] = error
        found = made[name]
        if isinstance(found, BaseException):
            raise found
        return found

    return run


@pytest.mark.parametrize(("cluster_name", "case"), PAIRS, ids=[f"{n}-{c.name}" for n, c in PAIRS])
def test_a_program_is_refused_by_name_or_harmless(
    cluster_name: str, case: Case, run_of: Runs
) -> None:
    outcome = run_of(cluster_name).outcomes[case.name]
    assert not (problems := outcome.problems(case)), f"{case.tries}\n{problems}\n{outcome}"


@pytest.mark.parametrize("cluster_name", CLUSTERS)
def test_other_sessions_feel_nothing(cluster_name: str, run_of: Runs) -> None:
    run = run_of(cluster_name)
    assert not run.elsewhere
    assert run.summary["steps"] >= STEPS_MIN, run.summary
    assert run.summary["slowest_ms"] <= 1000 * ANSWER_S, run.summary


def test_programs_without_end_end_after_their_sessions(
    new_cluster: Callable[..., Cluster], tmp_path: pathlib.Path
) -> None:
    """On a device each, of one worker: it is restarted once others wait for the devices."""
    count = len(bombs.ENDLESS)
    cluster = new_cluster(1, 1, count, "--orphan-limit", str(ORPHAN_S)).start()
    with contextlib.ExitStack() as clients:
        endless = []
        for device, case in enumerate(bombs.ENDLESS):
            client = clients.enter_context(contextlib.closing(Lines(cluster, "programs", "-")))
            client.send(job(case, tmp_path, [device]))
            endless.append((client, case))
        for client, case in endless:
            line = client.receive(3 * case.limit_s)
            assert line and line["stage"] == "run" and line["code"] == LATE, line
    ended = time.monotonic()
    right = next(case for case in structure.CASES if case.expect == RUNS)
    missing = set(range(count))
    with contextlib.closing(Lines(cluster, "programs", "-")) as client:
        while missing:
            device = min(missing)
            client.send(job(right, tmp_path, [device]))
            line = client.receive(right.limit_s)
            if line and line["stage"] == "fetch" and line["code"] == 0:
                missing.remove(device)
            assert time.monotonic() - ended < ORPHAN_S + 5, (missing, line)


def test_each_kind_of_outcome_is_expected_of_some() -> None:
    """And no name occurs twice."""
    assert {case.expect for _, case in PAIRS} == {REFUSED, FAILS, RUNS, HARMLESS, BOUNDED}
    for name in CLUSTERS:
        names = [case.name for cluster, case in PAIRS if cluster == name]
        assert len(names) == len(set(names))
