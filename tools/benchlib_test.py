"""Tests of bench/benchlib.py: what a recorded run writes, and which of its rows the page shows."""

from __future__ import annotations

import pathlib
import sys

import pytest

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "bench"))

import benchlib  # noqa: E402

PAGE = """# Measurements
<!-- bench first begin -->
replaced
<!-- bench first end -->
between
<!-- bench second begin -->
kept
<!-- bench second end -->
"""


def row(
    what: str, ours: float, peer: str = "", theirs: float = 0.0, limit: float = 0.0
) -> benchlib.Row:
    """One that holds, if it has a limit, where ours is at least so many times theirs."""
    found = benchlib.Row(what, "GB/s", [ours], peer=peer, peer_values=[theirs] if peer else [])
    if limit:
        found.aim, found.holds = f">= {limit:g}x", ours >= limit * theirs
    return found


def many() -> list[benchlib.Row]:
    rows = [row(f"case {number}", number + 1.0) for number in range(20)]
    return [*rows, row("copy", 3.0, "memcpy", 4.0, 0.8), row("copy", 3.0, "Ray, view", 1.0, 2.0)]


@pytest.fixture
def recorded(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.setattr(benchlib, "ROOT", tmp_path)
    monkeypatch.setattr(benchlib, "HISTORY", tmp_path / "bench" / "history")
    monkeypatch.setattr(benchlib, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(benchlib, "commit", lambda: "abc1234")
    (tmp_path / "bench").mkdir()
    benchlib.PAGE.write_text(PAGE)
    return tmp_path


def test_the_page_has_the_rows_that_are_shown_and_the_history_has_all(
    recorded: pathlib.Path,
) -> None:
    benchlib.record("first", many(), [("copy", "Ray"), ("case 7", "")])
    page = benchlib.PAGE.read_text()
    assert "kept" in page and "between" in page and "replaced" not in page
    shown = [line.split("|")[1].strip() for line in page.splitlines() if line.startswith("| c")]
    assert shown == ["copy", "case 7"]
    assert "1 of 2 limits hold" in page
    (history,) = (recorded / "bench" / "history").iterdir()
    assert f"[all 22 rows](../../bench/history/{history.name})" in page
    text = history.read_text()
    assert text.count("\n| c") == 22
    assert "1 of 2 limits hold. Missed:\n\n- copy beside memcpy: 0.75x, limit >= 0.8x" in text


def test_a_row_that_was_not_measured_and_a_ninth_one_are_refused_before_anything_is_written(
    recorded: pathlib.Path,
) -> None:
    with pytest.raises(ValueError, match="wants a row 'case 99' beside ''"):
        benchlib.record("first", many(), [("case 99", "")])
    with pytest.raises(ValueError, match="9 rows for the page, which has room for 8"):
        benchlib.record("first", many(), [("copy", "")] * 9)
    assert benchlib.PAGE.read_text() == PAGE
    assert not (recorded / "bench" / "history").exists()


def test_without_a_choice_the_page_has_the_first_eight() -> None:
    assert [row.what for row in benchlib.page_rows(many(), ())] == [f"case {n}" for n in range(8)]


def test_a_run_without_limits_has_no_verdict() -> None:
    assert benchlib.verdict([row("case", 1.0)]) == ""
    assert benchlib.verdict([row("copy", 3.0, "Ray", 1.0, 2.0)]) == "All 1 limits hold.\n"


def test_a_page_without_the_benchmark_s_place_is_named(recorded: pathlib.Path) -> None:
    with pytest.raises(SystemExit, match="bench third begin"):
        benchlib.record("third", many(), ())
