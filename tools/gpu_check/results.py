"""What a script of check.py found, and the sizes that it looks at."""

from __future__ import annotations

import json
import pathlib
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import jax

CASE_S = 40  # of one case
REHEARSAL = jax.default_backend() == "cpu"  # smaller, then
GIB = 1 << 30
LARGE = 64 << 20 if REHEARSAL else GIB  # bytes of a large array
WIDE = 512 if REHEARSAL else 8192  # of a product
OUT = pathlib.Path(sys.argv[2])


def say(**fields: Any) -> None:
    with OUT.open("a") as file:
        file.write(json.dumps(fields) + "\n")


def attempt(name: str, run: Callable[[], list[Any]]) -> None:
    """Says what `run` returns or raises. Its limit kills the process: nothing else ends a wait inside of a device
    runtime.
    """
    say(part="begun", case=name)
    signal.alarm(CASE_S)
    began = time.monotonic()
    try:
        say(part="value", case=name, value=run(), seconds=time.monotonic() - began)
    except Exception as error:  # noqa: BLE001  (the next case runs)
        text = f"{type(error).__name__}: {error}"[:2000]
        say(part="error", case=name, text=text, seconds=time.monotonic() - began)
    signal.alarm(0)


def words_of(run: Callable[[], Any]) -> str:
    """Those of the error that `run` raises."""
    try:
        run()
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}: {error}"
    return "no error"


def per_second(once: Callable[[], Any], limit_s: float = 1.5) -> float:
    count, began = 0, time.perf_counter()
    while time.perf_counter() - began < limit_s:
        once()
        count += 1
    return count / (time.perf_counter() - began)
