"""The faults of tools/mutants.toml can be planted: the code that each replaces is there, once."""

from __future__ import annotations

import pathlib
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent


def test_the_text_that_each_mutant_replaces_occurs_once() -> None:
    mutants = tomllib.loads((ROOT / "tools/mutants.toml").read_text())["mutant"]
    assert len({each["name"] for each in mutants}) == len(mutants)
    stale = [
        each["name"]
        for each in mutants
        if (ROOT / each["file"]).read_text().count(each["find"]) != 1
    ]
    assert not stale
