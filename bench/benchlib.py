"""Shared by the benchmarks: rows, ratios within one run, and the files in bench/out."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "bench" / "out"
sys.path.insert(0, str(ROOT / "tests"))  # harness.Cluster


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


def write(name: str, rows: list[Row]) -> None:
    """Writes bench/out/NAME.json and NAME.md and prints the table."""
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / f"{name}.json").write_text(json.dumps([row.as_dict() for row in rows], indent=2) + "\n")
    (OUT / f"{name}.md").write_text(table(rows))
    print(table(rows))
