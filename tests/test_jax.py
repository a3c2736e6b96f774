"""Compares plain JAX through Gangway with the same plugin without Gangway, bit by bit; the nightly run also compares
with jaxlib's own CPU backend, within the tolerance of another build of XLA. One test per function in `cases/` and
kind of cluster: one worker, also with XLA's collectives inside of it; two islands of two workers; the same
with the controller, each scheduler and each worker started by hand; and those over TLS, with the front door beside
the script. On one island of four workers, meshes are over all of them, which share memory, exchange streams on one
host, or are on hosts of their own over TLS. Outside the nightly run, all cases go through the default door on one
worker; its clusters of several workers run CORE, hosts of their own SPANNING; the other door runs CORE on one worker.
"""

from __future__ import annotations

import contextlib
import functools
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from case_runs import Outcome, reference_outcomes, run_cases
from compare import assert_bitwise_equal, assert_close
from harness import GANGWAY, NIGHTLY, Cluster
from hosts import Hosts
from run_cases import case_names

Outcomes = dict[str, Outcome]
# Those whose names end with "pjrt" go through the plugin in the script's process, the others through the IFRT proxy.
PER_WORKER = {
    "1x1x8": 8,
    "1x1x8-pjrt": 8,
    "xla-1x1x8": 8,
    "1x4x2": 8,
    "1x4x2-pjrt": 8,
    "1x4x2-streams": 8,
    "1x4x2-streams-pjrt": 8,
    "1x4x2-tls": 8,
    "1x4x2-tls-pjrt": 8,
    "2x2x2": 2,
    "2x2x2-pjrt": 2,
    "2x2x2-by-hand": 2,
    "2x2x2-tls": 2,
    "2x2x2-tls-pjrt": 2,
}
FOUR_HOSTS = ((2, 2, 2, 2),)
# Each data path and each kind of program. The nightly run runs all cases on every kind of cluster.
CORE = [
    "arrays.case_put_contiguous",
    "arrays.case_put_bfloat16",
    "arrays.case_put_16_mib",
    "arrays.case_put_sharded",
    "arrays.case_put_between_devices",
    "arrays.case_reshard_by_device_put",
    "arrays.case_make_array_from_callback",
    "arrays.case_make_array_from_single_device_arrays",
    "arrays.case_shard_of_a_donated_array",
    "arrays.case_device_get_of_a_tree",
    "compute.case_training",
    "compute.case_random",
    "programs.case_ahead_of_time",
    "programs.case_compile_error",
    "programs.case_orbax_checkpoint",
    "programs.case_four_threads",
    "sharded.case_grad_2d",
    "sharded.case_psum",
    "sharded.case_all_to_all",
    "sharded.case_two_disjoint_meshes",
    "sharded.case_device_put_to_more_devices",
]
# Of CORE, whose devices communicate.
SPANNING = [
    "compute.case_training",
    "sharded.case_grad_2d",
    "sharded.case_psum",
    "sharded.case_all_to_all",
    "sharded.case_two_disjoint_meshes",
]


ALL = case_names()


def runs_on(kind: str, case: str) -> bool:
    if NIGHTLY:
        return True
    return case in {
        "1x1x8": CORE,  # through the other door
        "1x1x8-pjrt": ALL,
        "1x4x2-pjrt": CORE,  # meshes over workers
        "1x4x2-tls-pjrt": SPANNING,  # and over hosts
        "2x2x2-tls-pjrt": CORE,  # several workers and islands, schedulers of their own, TLS
    }.get(kind, [])


RUNS = [(kind, case) for kind in PER_WORKER for case in ALL if runs_on(kind, case)]


@contextlib.contextmanager
def by_hand(
    folder: pathlib.Path,
    *,
    tls: bool,
    door: str = "ifrt",
    islands: tuple[tuple[int, ...], ...] = ((2, 2), (2, 2)),
) -> Iterator[dict[str, Any]]:
    """Arguments with which `run_cases` reaches a cluster that was started process by process."""
    hosts = Hosts(folder, tls=tls, islands=islands, schedulers=True)
    hosts.start_controller()
    try:
        if not tls:
            hosts.wait_for_token()
        hosts.start_schedulers()
        hosts.start_workers()
        hosts.wait_for("controller", "ready: ")
        if door == "pjrt":
            address = f"127.0.0.1:{hosts.control}"
            yield {"env": {"GANGWAY_ADDRESS": address, "GANGWAY_TLS": str(folder / "tls")}}
            return
        flags = hosts.connect_flags() if tls else ["--port", str(hosts.front_door)]
        state = {"GANGWAY_STATE_DIR": str(folder / "state")}
        yield {"launcher": [str(GANGWAY), "run", *flags], "env": state}
    finally:
        hosts.stop()


@contextlib.contextmanager
def a_cluster(islands: int, workers: int, devices: int, *options: str) -> Iterator[dict[str, Any]]:
    cluster = Cluster(islands, workers, devices, *options).start()
    try:
        yield {"port": cluster.port}
    finally:
        cluster.stop()


@pytest.fixture(scope="session")
def outcomes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, cluster: Cluster
) -> Callable[[str, int | str], Outcomes]:
    """The outcome of each selected case, on a backend with the given number of devices per mesh or on a
    kind of cluster. The first request runs all cases in one process.
    """
    parameters = [
        item.callspec.params for item in request.session.items if hasattr(item, "callspec")
    ]
    selected = [(p["kind"], p["case"]) for p in parameters if {"kind", "case"} <= p.keys()]

    @functools.cache
    def run(backend: str, on: int | str) -> Outcomes:
        wanted = {case for kind, case in selected if on in (kind, PER_WORKER[kind])}
        names = [name for name in case_names() if name in wanted]
        folder = tmp_path_factory.mktemp("cases")
        if backend == "reference":
            return reference_outcomes(names, folder, int(on))
        if backend == "gangway" and str(on).endswith("pjrt"):
            backend = "gangway-pjrt"
        if isinstance(on, int):
            return run_cases(backend, names, folder, per_worker=on)
        ways: dict[str, contextlib.AbstractContextManager[dict[str, Any]]] = {
            "1x1x8": contextlib.nullcontext({"port": cluster.port}),
            "1x1x8-pjrt": contextlib.nullcontext({"port": cluster.port}),
            "xla-1x1x8": a_cluster(1, 1, 8, "--collectives", "xla"),
            "1x4x2": a_cluster(1, 4, 2),
            "1x4x2-pjrt": a_cluster(1, 4, 2),
            "1x4x2-streams": a_cluster(1, 4, 2, "--shared-memory", "0"),
            "1x4x2-streams-pjrt": a_cluster(1, 4, 2, "--shared-memory", "0"),
            "1x4x2-tls": by_hand(folder, tls=True, islands=FOUR_HOSTS),
            "1x4x2-tls-pjrt": by_hand(folder, tls=True, door="pjrt", islands=FOUR_HOSTS),
            "2x2x2": a_cluster(2, 2, 2),
            "2x2x2-pjrt": a_cluster(2, 2, 2),
            "2x2x2-by-hand": by_hand(folder, tls=False),
            "2x2x2-tls": by_hand(folder, tls=True),
            "2x2x2-tls-pjrt": by_hand(folder, tls=True, door="pjrt"),
        }
        try:
            with ways[on] as way:
                return run_cases(backend, names, folder, per_worker=PER_WORKER[on], **way)
        except AssertionError as error:  # cached, so that the next tests do not try again
            return dict.fromkeys(names, Outcome(error=str(error)))

    return run


# The first test of a kind runs all its cases, each with its own limit.
@pytest.mark.timeout(800)
@pytest.mark.parametrize(("kind", "case"), RUNS)
def test_case(kind: str, case: str, outcomes: Callable[[str, int | str], Outcomes]) -> None:
    runs = {
        "in-process": outcomes("reference", PER_WORKER[kind]),
        "Gangway": outcomes("gangway", kind),
    }
    if NIGHTLY and kind == "1x1x8":  # builds of XLA differ alike on any mesh
        runs["jaxlib's CPU"] = outcomes("cpu", PER_WORKER[kind])
    for name, found in runs.items():
        assert not found[case].error, f"on {name}:\n{found[case].error}"
    assert_bitwise_equal(runs["Gangway"][case].value, runs["in-process"][case].value)
    if "jaxlib's CPU" in runs:
        assert_close(runs["Gangway"][case].value, runs["jaxlib's CPU"][case].value)
