"""Runs one example of a package, unmodified, and writes what it printed and the numbers in its variables.

    python tests/run_example.py --backend gangway|gangway-pjrt|reference|cpu --out FILE EXAMPLE

EXAMPLE is a script (.py), a notebook (.ipynb, whose code cells run; shell commands and magics do not), a text (.md,
whose Python blocks run), or the examples in the texts of a module's file, as doctest:FILE. --out receives a pickle:
{"printed": text, "values": arrays by variable}.
"""

from __future__ import annotations

import argparse
import contextlib
import doctest
import importlib.util
import io
import json
import pathlib
import pickle
import random
import re
import runpy
import sys
from typing import Any

import numpy as np
from run_cases import DEVICES, use_backend


def cells(path: pathlib.Path) -> list[str]:
    """The Python code of a notebook or of a text."""
    if path.suffix == ".md":
        return re.findall(r"^```python\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL)
    found = []
    for cell in json.loads(path.read_text())["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "code" and not source.startswith("%%"):
            found.append(re.sub(r"^([!%].*)", r"pass  # \1", source, flags=re.MULTILINE))
    return found


def run(example: str) -> dict[str, Any]:
    """Runs the example; returns its variables."""
    if example.startswith("doctest:"):
        spec = importlib.util.spec_from_file_location("example", example.partition(":")[2])
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        failed, tried = doctest.testmod(module)
        assert tried and not failed, f"{failed} of {tried} examples of {example} failed"
        return {"tried": tried}
    path = pathlib.Path(example)
    sys.argv = [str(path)]
    sys.path.insert(0, str(path.parent))
    if path.suffix == ".py":
        return runpy.run_path(str(path), run_name="__main__")
    scope: dict[str, Any] = {"__name__": "__main__"}
    for number, code in enumerate(cells(path)):
        exec(compile(code, f"{path.name}, cell {number}", "exec"), scope)
    return scope


def numbers(value: Any) -> list[np.ndarray]:
    """The arrays and numbers in a tree; keys of random numbers as their bits."""
    import jax

    found = []
    for leaf in jax.tree.leaves(value):
        if isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        if isinstance(leaf, jax.Array) and leaf.is_deleted():
            continue
        if isinstance(leaf, (jax.Array, np.ndarray, np.generic, int, float, complex)):
            found.append(np.asarray(leaf))
    return [array for array in found if array.dtype != object]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    backends = ["gangway", "gangway-pjrt", "reference", "cpu"]
    parser.add_argument("--backend", choices=backends, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("example")
    args = parser.parse_args()
    use_backend(args.backend)
    import jax

    assert len(jax.devices()) == DEVICES  # made here: some examples set XLA_FLAGS
    random.seed(0)
    np.random.seed(0)  # some examples draw their data without a seed
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            variables = run(args.example)
    finally:
        print(printed.getvalue())
    values = {name: numbers(v) for name, v in variables.items() if not name.startswith("_")}
    values = {name: arrays for name, arrays in values.items() if arrays}
    args.out.write_bytes(pickle.dumps({"printed": printed.getvalue(), "values": values}))


if __name__ == "__main__":
    main()
