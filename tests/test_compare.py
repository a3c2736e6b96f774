"""The comparison detects a difference in one bit, in a type, a shape or the structure."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from compare import assert_bitwise_equal, assert_close

VALUE = {"a": [np.arange(4.0), np.ones((2, 2), np.int32)], "b": np.float32(2)}
BAD: list[Any] = [
    {**VALUE, "b": np.nextafter(np.float32(2), np.float32(3))},
    {**VALUE, "b": np.float64(2)},
    {**VALUE, "a": [np.arange(4.0), np.ones((4, 1), np.int32)]},
    {**VALUE, "a": VALUE["a"][:1]},  # type: ignore[index]
    {"a": VALUE["a"]},
    {**VALUE, "a": [-np.arange(4.0), np.ones((2, 2), np.int32)]},  # -0.0
]


def test_equal_values_are_equal() -> None:
    assert_bitwise_equal(VALUE, VALUE)
    assert_close(VALUE, VALUE)


@pytest.mark.parametrize("bad", BAD)
def test_every_difference_counts(bad: Any) -> None:
    with pytest.raises(AssertionError):
        assert_bitwise_equal(bad, VALUE)


def test_close_has_a_limit() -> None:
    assert_close(np.float32(1.000001), np.float32(1))
    for value in (1.001, np.nan, np.inf):
        with pytest.raises(AssertionError):
            assert_close(np.float32(value), np.float32(1))
    with pytest.raises(AssertionError):
        assert_close(np.int32(1_000_001), np.int32(1_000_000))
