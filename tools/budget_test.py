"""The budget of `make test`: who is late, who is not judged, and that the shares fit into the whole."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
import time
from collections.abc import Callable

import budget
import pytest

TOOL = pathlib.Path(budget.__file__)


def test_the_shares_are_the_budget_and_those_of_all_stages() -> None:
    assert sum(budget.SHARES_S.values()) == budget.TOTAL_S
    script = TOOL.with_name("test.sh").read_text()
    stages = re.search(r"all_stages=\(([^)]*)\)", script)
    assert stages and stages[1].split() == list(budget.SHARES_S)


@pytest.mark.parametrize(
    ("seconds", "share", "stolen", "speeds", "late"),
    [
        (150, 100, 0.0, [100], False),
        (151, 100, 0.0, [100], True),
        (151, 100, 0.1, [100, 90], True),
        (195, 100, 0.0, [100, 130], False),  # as much slower as the machine
        (196, 100, 0.0, [100, 130], True),
        (196, 100, 0.0, [131], False),  # slow before the first stage
        (196, 100, 0.0, [100, 131], False),  # slow after this one
        (151, 100, 0.11, [100], False),
        (10_000, 0, 0.0, [100], False),  # a stage without a share
    ],
)
def test_a_stage_is_late_at_one_and_a_half_times_its_share_unless_the_machine_is_slow(
    seconds: float, share: float, stolen: float, speeds: list[int], late: bool
) -> None:
    found, words = budget.verdict(seconds, share, stolen, speeds)
    assert found == late
    assert bool(words) == (share > 0 and seconds > 150 * min(max(100, *speeds), 130) / 100)
    assert words.startswith("LATE") == late


@pytest.mark.parametrize(
    ("slow", "percent"), [(budget.hash_blocks, 150), (budget.start_processes, 140)]
)
def test_a_machine_is_as_slow_as_at_the_work_at_which_it_is_worst(
    slow: Callable[[int], None], percent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def best_s(work: Callable[[int], None]) -> float:
        return budget.REFERENCES_S[work] * (percent / 100 if work is slow else 0.5)

    monkeypatch.setattr(budget, "best_s", best_s)
    assert budget.speed_percent() == percent


def test_what_a_warm_machine_would_not_do_adds_to_a_share() -> None:
    share = budget.SHARES_S["asan"]
    assert budget.share_s("asan", 0, 0) == share
    assert budget.share_s("asan", 100, 30) == pytest.approx(share + 100 * budget.COMPILE_S + 30)
    assert budget.share_s("fuzz", 100, 30) == 0


def run(*arguments: object, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(TOOL), *map(str, arguments)]
    return subprocess.run(
        command, env=os.environ | env, capture_output=True, text=True, check=False
    )


def test_a_late_stage_fails_and_an_allowance_saves_it(tmp_path: pathlib.Path) -> None:
    noted = tmp_path / "noted"
    run("begin", noted)
    began = f'"at": {time.time() - 3 * budget.SHARES_S["format"]}'
    noted.write_text(re.sub(r'"at": [\d.]+', began, noted.read_text()))
    late = run("end", noted, "format", 100)
    slow = run("end", noted, "format", budget.SLOW_PERCENT + 1)
    said = late.stdout
    assert (
        "LATE" in said or "others" in said or "reference" in said
    )  # the latter if this machine is slow now
    assert late.returncode == int("LATE" in said)
    assert slow.returncode == 0 and "LATE" not in slow.stdout
    if "LATE" in said:  # and not the doing of others
        assert "late, on a machine that takes" in slow.stdout
    run("allow", "600", GANGWAY_ALLOWANCE=str(noted))
    saved = run("end", noted, "format", 100)
    assert saved.returncode == 0
    assert int(saved.stdout.split()[3]) >= 605, saved.stdout  # another build may miss in ccache now
