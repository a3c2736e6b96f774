"""The tables of the reference say what the code says: the keys of a cluster's file with their ranges and defaults, the
environment variables, the metrics, and the names of the Python package. Reads sources as text; a form that it does not
know is a failure, never skipped.
"""

from __future__ import annotations

import ast
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
REFERENCE = ROOT / "docs/reference"
# The function that reads a table of cluster.toml, and the heading of its keys.
TABLES = {
    "ParseConfig": "The file",
    "ReadController": "[controller]",
    "ReadIsland": "[[island]]",
    "ReadWorker": "A worker",
    "ReadScheduler": "A scheduler",
}


def rows(page: str, heading: str = "") -> dict[str, list[str]]:
    """Name -> the other cells, of the table rows that begin with a name in code marks, below a heading."""
    text = (REFERENCE / page).read_text()
    if heading:
        text = re.split(rf"(?m)^#+ {re.escape(heading)}$", text)[1]
        text = re.split(r"(?m)^#", text)[0]
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if name := re.fullmatch(r"`([\w]+)`", cells[0]):
            assert name[1] not in found, f"{page} has two rows of {name[1]}"
            found[name[1]] = cells[1:]
    return found


def functions(source: str) -> dict[str, str]:
    """Name -> text, of the functions at the left margin."""
    found = re.findall(r"(?ms)^[\w:<>&* ]+? \*?&?(\w+)\([^;{]*?\) \{\n(.*?)^\}", source)
    return dict(found)


def constants(source: str) -> dict[str, int]:
    return {
        name: int(value) for name, value in re.findall(r"constexpr \w+ (k\w+) = (\d+);", source)
    }


def test_keys_of_a_cluster_file() -> None:
    source = (ROOT / "gangway/cli/config.cc").read_text()
    read = functions(source)
    assert len(re.findall(r"reader\.Keys\(", source)) == len(TABLES)
    for function, heading in TABLES.items():
        keys = re.search(r"(?s)reader\.Keys\(\*?\w+,\s*\{(.*?)\}", read[function])
        assert keys, f"{function} checks no keys"
        assert set(rows("configuration.md", heading)) == set(re.findall(r'"(\w+)"', keys[1])), (
            heading
        )


def test_ranges_and_defaults_of_numbers() -> None:
    source = (ROOT / "gangway/cli/config.cc").read_text()
    header = (ROOT / "gangway/cli/config.h").read_text()
    limits = constants(source) | constants(header)
    defaults = dict(re.findall(r"(?m)^  (?:int|uint32_t) (\w+) = (\d+);", header))
    read = functions(source)
    checked = 0
    for function, heading in TABLES.items():
        told = rows("configuration.md", heading)
        for key, low, high, field in re.findall(
            r'reader\.Integer\(\*?\w+,\s*"(\w+)",\s*(\w+),\s*(\w+),\s*[\w.]*?(\w+)\)',
            read[function],
        ):
            bounds = " to ".join(str(limits.get(each, each)) for each in (low, high))
            assert told[key][0] == bounds, f"{key} is {told[key][0]}, and {bounds} in the code"
            if int(defaults[field]) >= int(low):  # else it has none
                assert told[key][1] == defaults[field], f"the default of {key}: {defaults[field]}"
            checked += 1
    assert checked == len(re.findall(r"reader\.Integer\(", source)) > 15


def test_environment_variables() -> None:
    sources = [
        path
        for pattern in ("gangway/**/*.cc", "gangway/**/*.h", "python/**/*.py")
        for path in ROOT.glob(pattern)
        if not re.search(r"_test|fuzz|/simulation/|conformance", str(path.relative_to(ROOT)))
    ]
    assert len(sources) > 500
    named = {
        name for path in sources for name in re.findall(r'"(GANGWAY_[A-Z_]+)"', path.read_text())
    }
    assert set(rows("configuration.md", "Environment")) == named


def test_metrics() -> None:
    source = (ROOT / "gangway/cli/metrics.cc").read_text()
    named = re.findall(r'(?:\.Gauge|devices|total|std::tuple)\(\s*"(\w+)"', source)
    helped = re.findall(r'"\w+",\s*"', source)  # a name, and its text of help
    assert len(named) == len(helped) > 15
    assert set(rows("metrics.md")) == {f"gangway_{name}" for name in named}


def test_names_of_the_python_package() -> None:
    page = (REFERENCE / "python.md").read_text()
    package = ast.parse((ROOT / "python/gangway/__init__.py").read_text())
    (names,) = (
        ast.literal_eval(node.value)
        for node in package.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    for name in names:
        assert re.search(rf"`(gangway\.)?{name}\b|^## {name}$", page, re.MULTILINE), name
    backend = ast.parse((ROOT / "python/gangway/_backend.py").read_text())
    (connect,) = (
        node.args
        for node in ast.walk(backend)
        if isinstance(node, ast.FunctionDef) and node.name == "connect"
    )
    arguments = {each.arg for each in connect.args + connect.kwonlyargs}
    assert set(rows("python.md", "connect")) == arguments
    errors = ast.parse((ROOT / "python/gangway/_errors.py").read_text())
    classes = {node.name for node in errors.body if isinstance(node, ast.ClassDef)}
    assert set(rows("python.md", "Errors")) == classes
