"""What an operation costs each role: CPU, slept wakes, system calls and what is written to sockets, counted by the
kernel; frames and their bytes, counted by Gangway. Part of bench/launch.py.

A role is "script", "head" or "workers", which are taken together. CPU and wakes are read from /proc; frames, which
script and head count, from the script's answers and the cluster's status. System calls and socket writes come from perf, which slows the processes
down, so they are counted in a run of their own; without perf, or where the kernel does not let this user have it, they
are left out.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import select
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import benchlib
import harness
import spmd_profile
from spmd_peers import Group

ROLES = ("script", "head", "workers")
COUNTED_S, PERF_COUNTED_S = 0.4, 0.2  # how long a counted run takes, about
COUNTED_MAX = 40_000  # operations of it
PERF_S = 30.0  # the limit of each of perf's answers
SYSTEM_CALLS = "raw_syscalls:sys_enter"
SOCKET_WRITES = (
    "syscalls:sys_exit_sendmsg"  # the only call by which a link writes (transport/local)
)
ERRORS_FROM = 1 << 63  # results of system calls from here on are negative: nothing was written

ByRole = dict[str, float]


@dataclasses.dataclass
class Counts:
    """Of one operation, by role. `system_calls`, `writes` and `bytes` are None if perf may not be used."""

    cpu_us: ByRole
    wakes: ByRole
    frames: ByRole = dataclasses.field(default_factory=dict)  # by role and direction
    frame_bytes: ByRole = dataclasses.field(default_factory=dict)
    system_calls: ByRole | None = None
    writes: ByRole | None = None
    bytes: ByRole | None = None


def role_of(process: str) -> str:
    """Of a process by its name in `pids`: "script", "head", "worker 0", "worker 1", ..."""
    return "workers" if process.startswith("worker") else process


def by_role(
    counted: Mapping[tuple[str, str], int], units: int, role: Callable[[str], str] = role_of
) -> ByRole:
    """Of one unit; `counted` is by process and thread."""
    sums = {} if role is not role_of else dict.fromkeys(ROLES, 0.0)
    for (process, _), count in counted.items():
        sums[role(process)] = sums.get(role(process), 0.0) + count / units
    return sums


def without_perf(
    pids: dict[str, int],
    operations: int,
    run: Callable[[], object],
    role: Callable[[str], str] = role_of,
) -> Counts:
    """CPU and wakes of `run`, which makes this number of operations."""
    cpu, switches = spmd_profile.counted(pids)
    run()
    cpu_after, switches_after = spmd_profile.counted(pids)
    return Counts(
        by_role(cpu_after - cpu, operations, role),
        by_role(switches_after - switches, operations, role),
    )


def traffic(script: Sequence[int], head: Mapping[str, int]) -> tuple[ByRole, ByRole]:
    """Frames and their bytes, by role and direction, since the processes began. `script`: of its answer; `head`: the
    cluster's counters.
    """
    frames: ByRole = {
        "script sent": script[0],
        "script received": script[2],
        "head sent": head["head_frames_sent"],
        "head received": head["head_frames_received"],
    }
    sizes: ByRole = {
        "script sent": script[1],
        "script received": script[3],
        "head sent": head["head_frame_bytes_sent"],
        "head received": head["head_frame_bytes_received"],
    }
    return frames, sizes


def of_role(counted: ByRole, role: str) -> ByRole:
    """By direction."""
    return {
        name.removeprefix(f"{role} "): value
        for name, value in counted.items()
        if name.startswith(f"{role} ")
    }


def difference(before: ByRole, after: ByRole) -> ByRole:
    return {name: after[name] - before[name] for name in before}


def per_operation(before: ByRole, after: ByRole, idle: ByRole, operations: int) -> ByRole:
    """`idle`: what counting itself takes."""
    made = difference(before, after)
    return {name: max(0, made[name] - idle[name]) / operations for name in made}


# --- perf ---


def why_no_perf() -> str:
    """Empty if perf counts system calls for this user, else why it does not."""
    command = ["perf", "stat", "-x", ",", "-e", f"{SYSTEM_CALLS},{SOCKET_WRITES}", "true"]
    try:
        tried = subprocess.run(command, capture_output=True, text=True, timeout=PERF_S)
    except OSError as error:
        return f"perf cannot be started: {error}"
    if tried.returncode or "<not" in tried.stderr:
        return f"perf does not count system calls: {tried.stderr.strip()[-300:]}"
    return ""


def threads(pids: Mapping[str, int]) -> dict[int, str]:
    """The role of each live thread, by its number."""
    return {
        int(task.name): role_of(process)
        for process, pid in pids.items()
        for task in pathlib.Path(f"/proc/{pid}/task").glob("*")
    }


def parse_stat(text: str, roles: Mapping[int, str]) -> ByRole:
    """Sums of perf's CSV, a line per thread: NAME-TID,COUNT,UNIT,EVENT,... A name may contain commas and hyphens. What
    was not counted did not run.
    """
    sums = dict.fromkeys(ROLES, 0.0)
    for line in text.splitlines():
        thread, found, rest = line.rpartition(f",,{SYSTEM_CALLS}")
        if not found or rest[:1] not in (",", ""):
            continue
        name, _, count = thread.rpartition(",")
        role = roles.get(int(name.rpartition("-")[2]))
        if role and count.isdigit():
            sums[role] += int(count)
    return sums


def parse_writes(text: str, roles: Mapping[int, str]) -> tuple[ByRole, ByRole]:
    """The writes that succeeded, and their bytes, of lines "TID 0xRESULT"."""
    writes, written = dict.fromkeys(ROLES, 0.0), dict.fromkeys(ROLES, 0.0)
    for line in text.splitlines():
        thread, result = line.split()
        role, value = roles.get(int(thread)), int(result, 16)
        if role and value < ERRORS_FROM:
            writes[role] += 1
            written[role] += value
    return writes, written


@contextlib.contextmanager
def perf(arguments: list[str], pids: Mapping[str, int]) -> Iterator[Callable[[str], None]]:
    """Runs perf, and yields what orders it to "enable" or "disable", and returns when it has done so. It counts in
    between. After the block, it has written its file and ended.
    """
    with contextlib.ExitStack() as stack:
        to_perf, control = os.pipe()
        answer, from_perf = os.pipe()
        for end in (to_perf, control, answer, from_perf):
            stack.callback(os.close, end)
        errors = stack.enter_context(tempfile.TemporaryFile("w+"))
        command = ["perf", *arguments, "-D", "-1", "--control", f"fd:{to_perf},{from_perf}"]
        command += ["-p", ",".join(map(str, pids.values()))]
        ends = (to_perf, from_perf)
        process = subprocess.Popen(command, pass_fds=ends, stdout=subprocess.DEVNULL, stderr=errors)

        def order(word: str) -> None:
            os.write(control, f"{word}\n".encode())
            ready, _, _ = select.select([answer], [], [], PERF_S)
            if not ready or not os.read(answer, 64).startswith(b"ack"):
                errors.seek(0)
                words = f"perf {arguments[0]} did not {word} within {PERF_S:g} s"
                raise SystemExit(f"{words}: {errors.read()[-1000:]}")

        try:
            yield order
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(PERF_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def with_perf(
    counts: Counts, pids: dict[str, int], operations: int, run: Callable[[], object]
) -> None:
    """Adds what perf counts of `run`, which makes this number of operations."""
    with tempfile.TemporaryDirectory(prefix="gangway-bench-") as folder:
        stat, data = f"{folder}/stat", f"{folder}/data"
        count = ["stat", "-x", ",", "--per-thread", "-e", SYSTEM_CALLS, "-o", stat]
        sample = ["record", "-q", "-c", "1", "-e", SOCKET_WRITES, "-o", data]
        with perf(count, pids) as counter, perf(sample, pids) as sampler:
            for order in (counter, sampler):
                order("enable")
            run()
            for order in (counter, sampler):
                order("disable")
            roles = threads(pids)
        command = ["perf", "script", "-i", data, "-F", "tid,trace"]
        script = subprocess.run(command, capture_output=True, text=True, timeout=PERF_S)
        system_calls = parse_stat(pathlib.Path(stat).read_text(), roles)
        writes, written = parse_writes(script.stdout, roles)
    counts.system_calls, counts.writes, counts.bytes = (
        {role: total / operations for role, total in each.items()}
        for each in (system_calls, writes, written)
    )


# --- Of a case ---


@dataclasses.dataclass
class Turn:
    """Of a group whose first process is the script, on a cluster."""

    group: Group
    cluster: harness.Cluster
    case: str
    units: int  # operations of one call of the case
    seconds: float  # of an operation, as it was measured before


def traffic_of(cluster: harness.Cluster, answer: Any) -> tuple[ByRole, ByRole]:
    """`answer`: of the script's last run."""
    return traffic(answer["traffic"], cluster.status()["counters"])


def pids_of(turn: Turn) -> dict[str, int]:
    status = turn.cluster.status()
    workers = [worker["pid"] for island in status["islands"] for worker in island["workers"]]
    pids = {f"worker {number}": pid for number, pid in enumerate(workers)}
    return {"script": turn.group.processes[0].pid, "head": turn.cluster.head_pid, **pids}


def measured(turn: Turn, has_perf: bool, role: Callable[[str], str] = role_of) -> Counts:
    """`role`: of CPU and wakes."""
    group, case, units = turn.group, turn.case, turn.units
    pids = pids_of(turn)
    last = group.run(case, 1)  # it is made; what follows only runs it

    def prepared(about_s: float) -> tuple[int, Callable[[], object]]:
        """The operations, and what makes them."""
        nonlocal last
        count = max(1, min(COUNTED_MAX, round(about_s / turn.seconds)) // units)
        if case == "arrays down":
            last = group.run(f"{case}, prepared", count)
        return count * units, lambda: group.run(case, count)

    operations, run = prepared(COUNTED_S)
    # Each status has frames of its own, which the first two tell.
    idle, before = traffic_of(turn.cluster, last), traffic_of(turn.cluster, last)
    answers: list[Any] = []
    counted = without_perf(pids, operations, lambda: answers.append(run()), role)
    after = traffic_of(turn.cluster, answers[-1])
    counted.frames, counted.frame_bytes = (
        per_operation(second, third, difference(first, second), operations)
        for first, second, third in zip(idle, before, after, strict=True)
    )
    if has_perf:
        with_perf(counted, pids, *prepared(PERF_COUNTED_S))
    return counted


def rows(what: str, counted: Counts, devices: str = "cpu") -> list[benchlib.Row]:
    """A row for each thing that is counted: the sum, and in its name each role's part."""
    each = [
        ("CPU", "us", counted.cpu_us),
        ("slept wakes", "wakes", counted.wakes),
        ("system calls", "calls", counted.system_calls),
        ("socket writes", "writes", counted.writes),
        ("bytes written to sockets", "bytes", counted.bytes),
    ]
    for role in ("script", "head"):
        each.append((f"frames of the {role}'s links", "frames", of_role(counted.frames, role)))
        each.append((f"bytes of these frames, {role}", "bytes", of_role(counted.frame_bytes, role)))
    found = []
    for name, unit, parts in each:
        if parts:
            shares = ", ".join(f"{part} {value:.4g}" for part, value in parts.items())
            total = sum(parts.values())
            text = f"{what}: {name}: {shares}"
            found.append(benchlib.Row(text, unit, [total], devices))
    return found
