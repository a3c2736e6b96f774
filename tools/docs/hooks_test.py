"""The pages of the site: links, lists, and what fails the build. Needs the venv of tools/versions/docs.txt."""

import pathlib
import re
import shutil
import subprocess

import doxygen_filter

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PAGE = """# Page

A line of text
1. a list without an empty line before it

   - a nested list, with [a
     link over two lines](../tools/run.sh)
"""


def build(root: pathlib.Path, pages: dict[str, str]) -> tuple[str, dict[str, str]]:
    """What mkdocs reports of these files, and the pages that it makes, without their frames."""
    nav = "nav:\n  - index.md\n  - page.md\n"
    config = re.sub(r"nav:\n( .*\n)+", nav, (ROOT / "mkdocs.yml").read_text(), count=1)
    (root / "mkdocs.yml").write_text(config)
    (root / "tools/docs").mkdir(parents=True)
    for name in ("hooks.py", "site.css"):
        shutil.copy(ROOT / "tools/docs" / name, root / "tools/docs")
    for path, text in pages.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    python = subprocess.run(
        ["tools/venv.sh", "docs"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
    told = subprocess.run(
        [python, "-m", "mkdocs", "build"], cwd=root, capture_output=True, text=True, check=False
    )
    site = root / "build/docs/site"
    made = {
        page.relative_to(site).as_posix(): re.sub(
            r"(?s).*<article[^>]*>(.*)</article>.*", r"\1", page.read_text()
        )
        for page in site.glob("**/*.html")
    }
    assert told.returncode == ("WARNING -" in told.stderr), told.stderr
    return told.stderr, made


def test_pages_and_files_outside_docs(tmp_path: pathlib.Path) -> None:
    told, made = build(
        tmp_path,
        {
            "README.md": "# First\n\n[page](docs/page.md#page) [more](tools)\n",
            "docs/page.md": PAGE,
            "tools/run.sh": "echo 'a [link](nowhere.md) in code'\n",
        },
    )
    assert "WARNING -" not in told, told
    assert 'href="page.html#page"' in made["index.html"]
    assert 'href="source/tools/index.html"' in made["index.html"]
    assert 'href="run.sh.html"' in made["source/tools/index.html"]
    assert "[link](nowhere.md)" in re.sub("<[^>]*>", "", made["source/tools/run.sh.html"])
    page = re.sub(r"\s+", " ", made["page.html"])
    assert 'href="source/tools/run.sh.html">a link over two lines</a>' in page
    assert re.search(r"<ol> <li> .*<ul> <li>.*</ul> </li> </ol>", page)


def test_comments_that_doxygen_sees() -> None:
    header = """// What the file is for.
#ifndef GUARD

// Belongs to nothing.

// A point.
struct Point {
  int x = 0;  // across
  Point(int x);  // NOLINT: implicit
};
"""
    assert doxygen_filter.shown(header) == [
        "/// \\file",
        "/// What the file is for.",
        "#ifndef GUARD",
        "",
        "// Belongs to nothing.",
        "",
        "/// A point.",
        "struct Point {",
        "  int x = 0;  ///< across",
        "  Point(int x);  // NOLINT: implicit",
        "};",
    ]


def test_what_fails_the_build(tmp_path: pathlib.Path) -> None:
    told, _ = build(
        tmp_path,
        {
            "README.md": "# First\n",
            "docs/page.md": "# Page\n[x](nowhere.md) [y](../tools/no.sh) [z](../README.md#no)\n",
            "docs/orphan.md": "# Orphan\n",
        },
    )
    for report in (
        "contains a link 'nowhere.md'",
        "contains a link '../tools/no.sh'",
        "does not contain an anchor '#no'",
        'not included in the "nav" configuration:\n  - orphan.md',
    ):
        assert report in told
