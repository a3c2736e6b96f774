"""Shared by the benchmarks: rows, ratios within one run, and the files that a run writes.

Each run writes bench/out/NAME.json and NAME.md, which git ignores. If the environment variable GANGWAY_BENCH_RECORD is
set and not empty, the run also becomes the current result: its table, with date and commit, is written to
bench/history/YYYY-MM-DD-NAME.md, over a run of the same day, and the rows that people look for, with the number of
limits that are missed, replace the text between "<!-- bench NAME begin -->" and "<!-- bench NAME end -->" in
docs/internals/measurements.md. Record complete runs on an idle machine only.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import textwrap
from collections.abc import Sequence

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "bench" / "out"
HISTORY = ROOT / "bench" / "history"
PAGE = ROOT / "docs" / "internals" / "measurements.md"
PAGE_ROWS_MAX = 8
sys.path.insert(0, str(ROOT / "testing"))  # harness.Cluster


@dataclasses.dataclass
class Row:
    """One measurement of ours, and the peer's measurement from the same run."""

    what: str
    unit: str
    values: list[float]
    devices: str = "cpu"
    peer: str = ""
    peer_values: list[float] = dataclasses.field(default_factory=list)
    aim: str = ""
    holds: bool | None = None

    def as_dict(self) -> dict[str, object]:
        value = statistics.median(self.values)
        row: dict[str, object] = {
            "what": self.what,
            "value": value,
            "unit": self.unit,
            "devices": self.devices,
            "minimum": min(self.values),
            "median": value,
            "maximum": max(self.values),
            "aim": self.aim,
            "holds": self.holds,
        }
        if self.peer_values:
            peer = statistics.median(self.peer_values)
            row |= {"peer": self.peer, "peer_value": peer, "ratio": value / peer if peer else None}
        return row


def table(rows: list[Row]) -> str:
    lines = [
        "| what | ours (min-max) | unit | devices | peer | theirs | ratio | aim | holds |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        data = row.as_dict()
        theirs = f"{data['peer_value']:.4g}" if "peer_value" in data else ""
        ratio = f"{data['ratio']:.3g}" if data.get("ratio") else ""
        holds = {None: "", True: "yes", False: "no"}[row.holds]
        lines.append(
            f"| {row.what} | {data['value']:.4g} ({data['minimum']:.4g}-{data['maximum']:.4g}) | {row.unit} "
            f"| {row.devices} | {row.peer} | {theirs} | {ratio} | {row.aim} | {holds} |"
        )
    return "\n".join(lines) + "\n"


def commit() -> str:
    """The short hash; "(dirty)" if files other than recorded results differ from it."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(ROOT), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    results = [f":!{path.relative_to(ROOT)}" for path in (PAGE, HISTORY)]
    dirty = git("status", "--porcelain", "--", ".", *results)
    return git("rev-parse", "--short", "HEAD") + (" (dirty)" if dirty else "")


def page_rows(rows: list[Row], shown: Sequence[tuple[str, str]]) -> list[Row]:
    """The rows of the page: in the order of `shown`, for each (what, peer) the first row whose `what` begins with the
    one, and whose peer with the other; without `shown`, the first eight. ValueError if one of them is missing.
    """
    if not shown:
        return rows[:PAGE_ROWS_MAX]
    if len(shown) > PAGE_ROWS_MAX:
        raise ValueError(f"{len(shown)} rows for the page, which has room for {PAGE_ROWS_MAX}")
    found = []
    for what, peer in shown:
        matches = (row for row in rows if row.what.startswith(what) and row.peer.startswith(peer))
        if (row := next(matches, None)) is None:
            raise ValueError(
                f"the page wants a row {what!r} beside {peer!r}, which the run did not measure"
            )
        found.append(row)
    return found


def verdict(rows: list[Row]) -> str:
    """How many limits hold, and which are missed: one paragraph, empty without limits."""
    limited = [row for row in rows if row.holds is not None]
    missed = [row for row in limited if not row.holds]
    if not limited:
        return ""
    if not missed:
        return f"All {len(limited)} limits hold.\n"
    lines = [f"{len(limited) - len(missed)} of {len(limited)} limits hold. Missed:\n"]
    for row in missed:
        ratio = row.as_dict().get("ratio")
        beside = f" beside {row.peer}" if row.peer else ""
        got = (
            f"{ratio:.3g}x"
            if isinstance(ratio, float)
            else f"{statistics.median(row.values):.4g} {row.unit}"
        )
        line = f"- {row.what}{beside}: {got}, limit {row.aim.removesuffix(': MISSED')}"
        lines += textwrap.wrap(line, 120, subsequent_indent="  ", break_on_hyphens=False)
    return "\n".join(lines) + "\n"


def record(name: str, rows: list[Row], shown: Sequence[tuple[str, str]]) -> None:
    """Makes the rows the current result of the benchmark, and adds them to the history."""
    begin, end = f"<!-- bench {name} begin -->\n", f"<!-- bench {name} end -->\n"
    before, begun, rest = PAGE.read_text().partition(begin)
    _, ended, after = rest.partition(end)
    if not (begun and ended):
        raise SystemExit(
            f"{PAGE}: not recorded: the line {begin.strip()!r}, followed by {end.strip()!r}, is "
            f"missing; add both to the benchmark's section and run it again"
        )
    today = datetime.date.today().isoformat()
    whole = HISTORY / f"{today}-{name}.md"
    text = page_text(whole, rows, shown)
    HISTORY.mkdir(exist_ok=True)
    result = f"{today}, commit {commit()}\n\n{table(rows)}\n{verdict(rows)}"
    whole.write_text(f"# bench {name}\n\n{result}")
    PAGE.write_text(f"{before}{begin}\n{text}\n{end}{after}")


def page_text(whole: pathlib.Path, rows: list[Row], shown: Sequence[tuple[str, str]]) -> str:
    """What the page says of a result that is in the file `whole`."""
    limited = [row for row in rows if row.holds is not None]
    held = sum(row.holds is True for row in limited)
    limits = f"; {held} of {len(limited)} limits hold" if limited else ""
    day = whole.name[:10]
    link = f"[all {len(rows)} rows](../../{whole.relative_to(ROOT)})"
    return f"{day}, commit {commit()}, {link}{limits}\n\n{table(page_rows(rows, shown))}"


def write(
    name: str, rows: list[Row], is_result: bool = True, shown: Sequence[tuple[str, str]] = ()
) -> None:
    """Writes bench/out/NAME.json and NAME.md and prints the table. If that is requested, records it, unless it is only
    a part of the result; `shown` says which rows the page then has (page_rows).
    """
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / f"{name}.json").write_text(json.dumps([row.as_dict() for row in rows], indent=2) + "\n")
    (OUT / f"{name}.md").write_text(table(rows))
    print(table(rows))
    if is_result and os.environ.get("GANGWAY_BENCH_RECORD"):
        record(name, rows, shown)
