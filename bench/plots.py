"""Draws the plots of docs/guides/meshes.md from the results of `make bench-rl` and `make bench-serve` in bench/out.

    .venv/bin/python bench/plots.py

`make bench-figures` calls `dispatch` itself.
"""

from __future__ import annotations

import json
import pathlib
from typing import Any

import benchlib
import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot  # noqa: E402

FOLDER = benchlib.ROOT / "docs" / "guides"
GANGWAY, PEER = "#08519c", "#9ecae1"
# Small files that do not change when the results do not.
matplotlib.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "gangway", "font.size": 10}


def save(figure: Any, path: pathlib.Path) -> None:
    figure.savefig(path, metadata={"Date": None})
    lines = [line.rstrip() for line in path.read_text().splitlines()]
    path.write_text("\n".join(lines) + "\n")
    print(path.relative_to(benchlib.ROOT))


def learning() -> None:
    rows = json.loads((benchlib.OUT / "rl.json").read_text())
    figure, panels = pyplot.subplots(1, 2, figsize=(8, 2.8), layout="constrained", sharey=True)
    titles = {
        "simulated work": "simulated: trainer 80, rollouts 100 ms",
        "the example": "the example, on two cores",
    }
    for axes, (kind, title) in zip(panels, titles.items(), strict=True):
        for y, name in enumerate(("staleness 1", "staleness 0")):
            row = next(
                row
                for row in rows
                if row["what"] == f"{kind}: {name}" and row["peer"] != "staleness 0"
            )
            peer = "no pause, no copies" if "bound" in row["peer"] else "JAX in one process"
            for offset, value, color, label in (
                (-0.2, row["value"], GANGWAY, "Gangway"),
                (0.2, row["peer_value"], PEER, peer),
            ):
                bar = axes.barh(y + offset, value, 0.38, color=color, label=None if y else label)
                axes.bar_label(bar, fmt=" %.0f")
        axes.set(yticks=(0, 1), yticklabels=("staleness 1", "staleness 0"), ylim=(1.5, -0.5))
        axes.set(xlabel="ms per step", title=title)
        axes.margins(x=0.15)
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.28), ncols=2, frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
    save(figure, FOLDER / "meshes-rl.svg")


def serving() -> None:
    ticks = json.loads((benchlib.OUT / "serve-ticks.json").read_text())
    figure, axes = pyplot.subplots(figsize=(7, 2.8), layout="constrained")
    for name, color in (("apart, one tick ahead", GANGWAY), ("aggregated, one tick ahead", PEER)):
        values = sorted(ticks[name])
        shares = [100 * (i + 1) / len(values) for i in range(len(values))]
        axes.step(shares, values, color=color, label=name.partition(",")[0])
    axes.set(
        xlim=(0, 100),
        ylim=(0, None),
        xlabel="% of the ticks take at most",
        ylabel="ms",
        title="a tick's work takes 10 ms, a prompt's 40 ms (simulated)",
    )
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    save(figure, FOLDER / "meshes-serve.svg")


def dispatch(folder: pathlib.Path) -> None:
    """Of bench/figures.py: a panel for each duration of a stage."""
    import figures

    rows = {row["what"]: row for row in json.loads((benchlib.OUT / "figures.json").read_text())}
    count = len(figures.COSTS_MS)
    plot, panels = pyplot.subplots(1, count, figsize=(8, 3.2), layout="constrained")
    for axes, cost_ms in zip(panels, figures.COSTS_MS, strict=True):
        for way, line in (("", "-"), (" awaited", "--")):
            found = [rows[figures.what(stages, cost_ms, way)] for stages in figures.STAGES]
            for kind, key, color in (
                (figures.PARALLEL, "value", GANGWAY),
                (figures.SEQUENTIAL, "peer_value", PEER),
            ):
                values = [row[key] for row in found]
                label = f"{kind}{',' if way else ''}{way}"
                axes.plot(figures.STAGES, values, line, color=color, marker="o", label=label)
        axes.set(xscale="log", xticks=figures.STAGES, xticklabels=figures.STAGES, ylim=(0, None))
        axes.set(xlabel="stages, each on another worker", title=f"stages of {cost_ms:g} ms")
        axes.minorticks_off()
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set(ylabel="microbatches per second")
    panels[0].legend(frameon=False)
    save(plot, folder / "pipeline-dispatch.svg")


if __name__ == "__main__":
    learning()
    serving()
