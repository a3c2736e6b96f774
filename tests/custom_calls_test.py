"""The calls that the tests of gangway/compiler/check_calls judge are those that this JAX makes."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
CALLS = ROOT / "gangway/compiler/check_calls/testdata/jax_calls.txt"


@pytest.mark.nightly
@pytest.mark.timeout(200)  # 10 s on a quiet core
def test_the_data_is_of_this_jax():
    made = subprocess.run(
        [sys.executable, ROOT / "tools/custom_calls.py", "calls"],
        check=True,
        capture_output=True,
        text=True,
        timeout=190,
    ).stdout
    assert made == CALLS.read_text(), "run tools/custom_calls.py calls > " + str(CALLS)


def test_each_function_of_jaxlib_has_a_call():
    """What jaxlib registers for CPUs, but for sparse matrices, which no worker has."""
    from jaxlib import lapack

    made = set(re.findall(r'custom_call_target: "([^"]*)"', CALLS.read_text()))
    missing = {name for name, _, _ in lapack.registrations()["cpu"]} - made
    assert not missing
