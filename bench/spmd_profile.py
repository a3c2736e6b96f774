"""Where the CPU time of a case of bench/spmd.py goes, by process and thread. Part of that benchmark: `spmd.py --profile
CASE`.
"""

from __future__ import annotations

import collections
import contextlib
import pathlib
import re
import signal
import subprocess
from collections.abc import Iterator

Threads = collections.Counter[tuple[str, str]]  # by the names of process and thread
SAMPLES_PER_S = 997  # not a multiple of the kernel's tick
PERF_ENDS_S = 30


def counted(pids: dict[str, int]) -> tuple[Threads, Threads]:
    """CPU time in us, and voluntary context switches, of the live threads since they began. Threads of one process whose
    names differ by a number count as one.
    """
    cpu: Threads = collections.Counter()
    switches: Threads = collections.Counter()
    for process, pid in pids.items():
        for task in pathlib.Path(f"/proc/{pid}/task").glob("*"):  # none if the process has ended
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
                thread = re.sub(r"[0-9]+", "N", (task / "comm").read_text().rstrip("\n"))
                ns = int((task / "schedstat").read_text().split()[0])
                lines = (task / "status").read_text().splitlines()
                given = next(line for line in lines if line.startswith("voluntary_ctxt_switches"))
                cpu[process, thread] += ns // 1000
                switches[process, thread] += int(given.split()[1])
    return cpu, switches


@contextlib.contextmanager
def sampled(pids: dict[str, int], into: str) -> Iterator[None]:
    """perf's samples of these processes, for `perf report --no-inline`. An empty `into`: none."""
    if not into:
        yield
        return
    command = ["perf", "record", "-q", "-g", "-F", str(SAMPLES_PER_S), "-o", into]
    perf = subprocess.Popen([*command, "-p", ",".join(map(str, pids.values()))])
    try:
        yield
    finally:
        perf.send_signal(signal.SIGINT)
        perf.wait(PERF_ENDS_S)


def text(before: tuple[Threads, Threads], after: tuple[Threads, Threads], units: int) -> str:
    """A line for each thread that has 1% of the CPU time or more: what a unit of the case takes of it. Threads that end
    between the two counts are left out.
    """
    cpu, switches = after[0] - before[0], after[1] - before[1]
    lines = [f"{'CPU us':>10} {'switches':>9}  process, thread"]
    for key, us in cpu.most_common():
        if us >= 0.01 * cpu.total():
            lines.append(f"{us / units:10.4g} {switches[key] / units:9.3g}  {', '.join(key)}")
    lines.append(f"{cpu.total() / units:10.4g} {switches.total() / units:9.3g}  all")
    return "\n".join(lines)
