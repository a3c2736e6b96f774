"""Runs many cases in one process on one backend, because starting JAX costs more than most cases.

    python tests/run_cases.py --backend gangway|gangway-pjrt|reference|cpu --out FILE [--cases NAME ...]

A case is MODULE.FUNCTION of tests/cases, or of another folder of tests/ by --package, followed by .ARGUMENT for each
argument. Each case appends
two pickles to FILE: ("start", name), then ("done", name, value, seconds) or ("failed", name,
traceback); so a crash is attributed to the case that was running. A case that exceeds the limit ends
the process with a traceback of all threads on stderr. `gangway` takes the cluster's port from
GANGWAY_PORT. With --per-worker N, a mesh has N devices, and a hash of its name gives a case its worker.
"""

from __future__ import annotations

import argparse
import faulthandler
import functools
import importlib
import os
import pathlib
import pickle
import re
import sys
import time
import traceback
import zlib
from collections.abc import Callable
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
TESTS = pathlib.Path(__file__).resolve().parent
CASES = TESTS / "cases"
CASE_LIMIT_S = 60
DEVICES = 8


def case_names(package: str = "cases", kind: str = "case") -> list[str]:
    """Every case as "module.function", without importing the modules, which would import JAX. `kind` begins the names
    of the functions.
    """
    return [
        f"{path.stem}.{name}"
        for path in sorted((TESTS / package).glob("*.py"))
        for name in re.findall(rf"^def ({kind}_\w+)\(", path.read_text(), re.MULTILINE)
    ]


def use_backend(name: str) -> None:
    if name.startswith("gangway"):
        sys.path.append(str(ROOT / "python"))
        import gangway

        gangway.connect(door="pjrt" if name == "gangway-pjrt" else "ifrt")
    elif name == "reference":
        sys.path.append(str(ROOT / "testing"))
        import reference

        reference.register(DEVICES)
    else:
        os.environ["JAX_PLATFORMS"] = "cpu"
        os.environ["NPROC"] = (
            "64"  # its own choice, a thread per device, is not enough for several launches at once
        )
        os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={DEVICES}"


def load(name: str, per_worker: int = DEVICES, package: str = "cases") -> Callable[[], Any]:
    from cases import topology

    topology.use(per_worker, zlib.crc32(name.encode()) % (DEVICES // per_worker))
    module, function, *arguments = name.split(".")
    case: Callable[..., Any] = getattr(importlib.import_module(f"{package}.{module}"), function)
    return functools.partial(case, *arguments)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--backend", choices=["gangway", "gangway-pjrt", "reference", "cpu"], required=True
    )
    parser.add_argument("--out", required=True)
    parser.add_argument("--package", default="cases", help="of tests/, where the cases are")
    parser.add_argument("--cases", nargs="*", help="default: all")
    parser.add_argument("--limit", type=float, default=CASE_LIMIT_S, help="seconds per case")
    parser.add_argument("--per-worker", type=int, default=DEVICES, help="devices in a mesh")
    args = parser.parse_args()
    use_backend(args.backend)
    with open(args.out, "ab", buffering=0) as out:
        for name in case_names(args.package) if args.cases is None else args.cases:
            out.write(pickle.dumps(("start", name)))
            faulthandler.dump_traceback_later(args.limit, exit=True)
            began = time.monotonic()
            try:
                value = load(name, args.per_worker, args.package)()
                record: tuple[Any, ...] = ("done", name, value, time.monotonic() - began)
            except BaseException:  # the other cases run even so
                record = ("failed", name, traceback.format_exc())
            faulthandler.cancel_dump_traceback_later()
            out.write(pickle.dumps(record))


if __name__ == "__main__":
    main()
