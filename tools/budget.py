"""The budget of `make test`: 12 minutes on a warm machine of two cores. Each stage has a share of it, and prints its time
beside it; it is late at one and a half times its share, and then fails.

    tools/budget.py speed                    the time that this machine takes, in percent of the reference machine's
    tools/budget.py begin FILE               notes what a stage starts from
    tools/budget.py allow SECONDS            from within a stage: adds to its share, in the file $GANGWAY_ALLOWANCE
    tools/budget.py end FILE STAGE SPEED     prints time and share of the stage; exits with 1 if it is late

What a warm machine would not have to do adds to a share: compiles that ccache could not answer, and what a stage allows
itself. What is late grows with the machine's own time (`speed`, before the first stage or after this one). A stage is
not late where its time says nothing about the change: on a machine that is slower than SLOW_PERCENT, and where others
had the cores for more than STOLEN of its time.
"""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

SHARES_S = {
    "setup": 22,
    "build": 60,
    "format": 5,
    "tidy": 22,
    "scripts": 8,
    "docs": 12,
    "simulation": 65,
    "clang_tidy": 5,
    "e2e": 326,
    "asan": 115,
    "tsan": 80,
}
TOTAL_S = 720
LATE = 1.5
COMPILE_S = (
    2.5  # on two cores, of one that ccache cannot answer: under AddressSanitizer, with its links
)
SLOW_PERCENT = 130
STOLEN = 0.1
BLOCK, BLOCKS, STARTS, ROUNDS = bytes(1 << 20), 64, 6, 5


def hash_blocks(_: int) -> None:
    state = hashlib.blake2b()
    for _block in range(BLOCKS):
        state.update(BLOCK)  # without the interpreter's lock


def start_processes(_: int) -> None:
    for _start in range(STARTS):
        command = [sys.executable, "-I", "-S", "-c", "import json, subprocess"]
        subprocess.run(command, check=True)


# The probe: what it does, and the seconds that a round takes on the machine on which the shares were set, when nothing
# else runs there. Processes were not started there: on a machine of two cores where hashing takes 0.12 s and a stage
# 1.2 to 1.34 times its share, six starts on each core take 0.24 s, because its page faults are slow.
REFERENCES_S: dict[Callable[[int], None], float] = {hash_blocks: 0.12, start_processes: 0.19}


def best_s(work: Callable[[int], None]) -> float:
    """Of some rounds, in each of which two cores do the work, as many as the reference machine has: a process that
    starts others for more cores would measure its own lock.
    """
    cores = min(2, os.cpu_count() or 1)
    best = float("inf")
    with ThreadPoolExecutor(cores) as pool:
        for _ in range(ROUNDS):
            began = time.monotonic()
            list(pool.map(work, range(cores)))
            best = min(best, time.monotonic() - began)
    return best


def speed_percent() -> int:
    """That of the work at which this machine is worst."""
    return max(round(100 * best_s(work) / seconds) for work, seconds in REFERENCES_S.items())


def compiles_missed() -> int:
    try:
        told = subprocess.run(
            ["ccache", "--print-stats"], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:  # before the setup
        return 0
    found = re.search(r"^cache_miss\t(\d+)$", told.stdout, re.MULTILINE)
    return int(found[1]) if found else 0


def stolen_s() -> float:
    """CPU time that other guests of the host took from this machine since its start."""
    fields = pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()
    return int(fields[8]) / os.sysconf("SC_CLK_TCK")


def share_s(stage: str, missed: int, allowed: float) -> float:
    """0: the stage has none, and is never late."""
    share = SHARES_S.get(stage, 0)
    return share and share + missed * COMPILE_S + allowed


def verdict(seconds: float, share: float, stolen: float, speeds: list[int]) -> tuple[bool, str]:
    """Whether a stage is too late, and what to say. `stolen`: a part of the time of all cores."""
    slower = min(max(100, *speeds), SLOW_PERCENT) / 100
    if not share or seconds <= LATE * share * slower:
        return False, ""
    if max(speeds) > SLOW_PERCENT:
        return False, f"late, on a machine that takes {max(speeds)}% of the reference's time"
    if stolen > STOLEN:
        return False, f"late, but others had the cores for {100 * stolen:.0f}% of the time"
    return True, f"LATE: over {LATE} times its share of the budget"


def begin(file: pathlib.Path) -> None:
    noted = {"at": time.time(), "missed": compiles_missed(), "stolen": stolen_s()}
    file.write_text(json.dumps(noted) + "\n")


def end(file: pathlib.Path, stage: str, speed: int) -> int:
    first, *allowances = [*file.read_text().splitlines(), ""]
    if not first.startswith("{"):
        print("not judged: this machine had no Python before", end="")
        return 0
    noted = json.loads(first)
    seconds = time.time() - noted["at"]
    share = share_s(
        stage, compiles_missed() - noted["missed"], sum(map(float, filter(None, allowances)))
    )
    stolen = (stolen_s() - noted["stolen"]) / max(seconds, 1) / (os.cpu_count() or 1)
    speeds = [speed] if not share or seconds <= LATE * share else [speed, speed_percent()]
    late, words = verdict(seconds, share, stolen, speeds)
    print(f"{seconds:5.0f} s of {share:5.0f}  {words}" if share else f"{seconds:5.0f} s", end="")
    return int(late)


def main() -> int:
    match sys.argv[1:]:
        case ["speed"]:
            print(speed_percent())
        case ["begin", file]:
            begin(pathlib.Path(file))
        case ["allow", seconds]:
            if noted := os.environ.get("GANGWAY_ALLOWANCE"):
                with open(noted, "a") as allowances:
                    print(seconds, file=allowances)
        case ["end", file, stage, speed]:
            return end(pathlib.Path(file), stage, int(speed))
        case _:
            sys.exit(__doc__)
    return 0


if __name__ == "__main__":
    sys.exit(main())
