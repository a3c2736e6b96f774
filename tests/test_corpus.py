"""Whole programs over four workers of two devices (tests/corpus/): what they give there is what the same plugin gives
in one process, bit by bit. Each collective with each form of groups, reduction and element type, against NumPy.
Outside the nightly run: FAST, through the default door, and each element type with one form.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator

import pytest
from case_runs import Outcome, reference_outcomes, run_cases
from compare import assert_bitwise_equal
from harness import DOORS, NIGHTLY, Cluster
from run_cases import TESTS, case_names

PROGRAMS = case_names("corpus")
FAST = [
    "communication.case_all_gather_variants",
    "communication.case_permutations",
    "communication.case_sub_axes",
    "control.case_collective_in_a_condition",
    "numerics.case_convolution_with_halos",
    "numerics.case_random_numbers_by_device",
    "numerics.case_uneven_sizes",
    "training.case_adam",
    "transformers.case_mixture_of_experts_by_all_to_all",
    "transformers.case_ring_attention_forward",
]
# Checks that compare with NumPy themselves, or meet a refusal.
CHECKS = [
    name
    for name in case_names("corpus", "check")
    if not name.startswith("collectives.")
    and (NIGHTLY or not name.startswith("linear_algebra.") or name.endswith(("tall_parts", "svd")))
]
TYPES = re.findall(r'^    "(\w+)": "', (TESTS / "corpus" / "by_hand.py").read_text(), re.MULTILINE)
# Replicas, partitions and groups, each with every type, or each type with one of them.
FORMS = re.findall(
    r'^    "([a-z-]+)": \(', (TESTS / "corpus" / "collectives.py").read_text(), re.MULTILINE
)
SIZES = ["in-parts", "in-messages"]
LARGE_FORMS = ["replicas-halves", "flattened-all", "flattened-of-both"]
LARGE_EACH_DAY = [  # each form in both sizes, which elements of one to sixteen bytes divide differently
    "bool.replicas-halves.in-parts",
    "float16.replicas-halves.in-messages",
    "int32.flattened-all.in-parts",
    "float32.flattened-all.in-messages",
    "complex128.flattened-of-both.in-parts",
    "bfloat16.flattened-of-both.in-messages",
]
# Ragged exchanges: groups of at most four members, and the types of their lists.
RAGGED_FORMS = [
    "replicas-halves",
    "replicas-crossed",
    "flattened-strided",
    "replicas-of-both",
    "replicas-of-four",
    "partitions-pairs",
]
LISTS = ["int32", "int64", "uint32", "uint64"]
RAGGED_EACH_DAY = [  # each type of a list once
    "bfloat16.partitions-pairs.uint32",
    "complex64.replicas-halves.int32",
    "float64.replicas-of-four.uint64.in-messages",
    "int8.replicas-crossed.int64.in-messages",
]
RAGGED = [
    f"{dtype}.{form}.{LISTS[(i + j) % 4]}{['', '.in-messages'][(i + j) % 2]}"
    for i, dtype in enumerate(each for each in TYPES if each != "bool")
    for j, form in enumerate(RAGGED_FORMS)
]
WAYS = ["permutations", "broadcasts", "uneven_groups", "by_partitioner", "by_name", "by_pmap"]
COLLECTIVES = [
    *(
        f"collectives.check_form.{dtype}.{form}"
        for i, dtype in enumerate(TYPES)
        for j, form in enumerate(FORMS)
        if NIGHTLY or j == i % len(FORMS)
    ),
    *(
        f"collectives.check_{way}.{dtype}"
        for i, dtype in enumerate(TYPES)
        for j, way in enumerate(WAYS)
        if NIGHTLY or 2 * j == i
    ),
    "collectives.check_elements_of_four_bits",
    # Large operands.
    *(
        f"collectives.check_form.{dtype}.{form}.{size}"
        for dtype in TYPES
        for form in LARGE_FORMS
        for size in SIZES
        if NIGHTLY or f"{dtype}.{form}.{size}" in LARGE_EACH_DAY
    ),
    *(
        f"collectives.check_{way}.{dtype}.{size}"
        for i, dtype in enumerate(TYPES)
        for j, way in enumerate(["permutations", "uneven_groups", "broadcasts"])
        for k, size in enumerate(SIZES)
        if NIGHTLY or (i == 5 * j and k == 1)
    ),
    *(f"collectives.check_ragged.{each}" for each in (RAGGED if NIGHTLY else RAGGED_EACH_DAY)),
]
REFUSED = [name for name in CHECKS if name.startswith("refused.")]
Outcomes = Callable[[str, str], dict[str, Outcome]]


@pytest.fixture(scope="module")
def four_workers() -> Iterator[Cluster]:
    running = Cluster(islands=1, workers=4, devices=2).start()
    yield running
    running.stop()


@pytest.fixture(scope="module")
def one_worker() -> Iterator[Cluster]:
    running = Cluster(islands=1, workers=1, devices=8).start()
    yield running
    running.stop()


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """What each selected program or check gave, by the kind of test and the door; the first request runs all of them
    in one process.
    """
    selected = [
        {**item.callspec.params, "kind": getattr(item, "originalname", "")}
        for item in request.session.items
        if hasattr(item, "callspec")
    ]

    @functools.cache
    def run(kind: str, door: str) -> dict[str, Outcome]:
        names = [p["name"] for p in selected if p["kind"] == kind and door in (p["door"], "")]
        folder = tmp_path_factory.mktemp("corpus")
        if not door:
            return reference_outcomes(list(dict.fromkeys(names)), folder, 8, package="corpus")
        workers = "one_worker" if kind == "test_refused_in_one_worker" else "four_workers"
        cluster: Cluster = request.getfixturevalue(workers)
        return run_cases(
            "gangway-pjrt" if door == "pjrt" else "gangway",
            names,
            folder,
            cluster.port,
            timeout_s=900,
            package="corpus",
            env={"JAX_ENABLE_X64": "1"} if kind == "test_collective" else {},
        )

    return run


@pytest.mark.timeout(1200)  # the first test of a kind runs all of them, each with its own limit
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", PROGRAMS if NIGHTLY else FAST)
def test_program(name: str, door: str, outcomes: Outcomes) -> None:
    expected, found = outcomes("test_program", "")[name], outcomes("test_program", door)[name]
    assert not expected.error, f"in-process:\n{expected.error}"
    assert not found.error, f"on four workers:\n{found.error}"
    assert_bitwise_equal(found.value, expected.value)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", CHECKS)
def test_check(name: str, door: str, outcomes: Outcomes) -> None:
    error = outcomes("test_check", door)[name].error
    assert not error, error


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", REFUSED)
def test_refused_in_one_worker(name: str, door: str, outcomes: Outcomes) -> None:
    error = outcomes("test_refused_in_one_worker", door)[name].error
    assert not error, error


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", COLLECTIVES)
def test_collective(name: str, door: str, outcomes: Outcomes) -> None:
    error = outcomes("test_collective", door)[name].error
    assert not error, error


def test_the_corpus_is_complete() -> None:
    assert len(PROGRAMS) >= 60
    assert set(FAST) <= set(PROGRAMS) and len(FAST) == 10
    assert (len(TYPES), len(FORMS)) == (15, 12)
    assert set(RAGGED_EACH_DAY) <= set(RAGGED)
    each_day = {f"collectives.check_form.{each}" for each in LARGE_EACH_DAY}
    assert len(each_day) == len(LARGE_FORMS) * len(SIZES) and each_day <= set(COLLECTIVES)
