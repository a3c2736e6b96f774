"""Compares pytrees of numpy arrays from two backends."""

from __future__ import annotations

from typing import Any

import numpy as np


def leaves(value: Any, path: str = "") -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [leaf for key in sorted(value) for leaf in leaves(value[key], f"{path}[{key!r}]")]
    if isinstance(value, list | tuple):
        return [leaf for i, item in enumerate(value) for leaf in leaves(item, f"{path}[{i}]")]
    return [] if value is None else [(path or "result", value)]


def _pairs(found: Any, expected: Any) -> list[tuple[str, np.ndarray, np.ndarray]]:
    ours, theirs = leaves(found), leaves(expected)
    assert [path for path, _ in ours] == [path for path, _ in theirs], (
        "the results have different structures"
    )
    pairs = []
    for (path, a), (_, b) in zip(ours, theirs, strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert (a.dtype, a.shape) == (b.dtype, b.shape), (
            f"{path}: found {a.dtype}{a.shape}, expected {b.dtype}{b.shape}"
        )
        pairs.append((path, a, b))
    return pairs


def assert_bitwise_equal(found: Any, expected: Any) -> None:
    for path, a, b in _pairs(found, expected):
        if a.tobytes() != b.tobytes():
            differ = np.count_nonzero(a != b)
            raise AssertionError(f"{path}: {differ} of {a.size} elements differ\n{a}\n{b}")


def assert_close(found: Any, expected: Any) -> None:
    """Equal within the rounding of two builds of XLA; integers and strings are equal exactly."""
    for path, a, b in _pairs(found, expected):
        if a.dtype.kind in "biuSU":
            np.testing.assert_array_equal(a, b, err_msg=path)
            continue
        coarse = a.dtype.itemsize == 2
        kind = np.complex128 if a.dtype.kind == "c" else np.float64
        a, b = a.astype(kind), b.astype(kind)
        scale = float(np.max(np.abs(b), initial=0.0))
        relative = 2e-2 if coarse else 1e-4
        np.testing.assert_allclose(a, b, rtol=relative, atol=relative * 0.1 * scale, err_msg=path)
