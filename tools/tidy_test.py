"""tools/tidy finds each kind of violation and accepts correct files: one planted fault per test, in a small tree."""

import pathlib
import subprocess
import sys

import pytest

TIDY = pathlib.Path(__file__).parent / "tidy"

HEADER = """// What this is for.
#ifndef GANGWAY_{guard}_H_
#define GANGWAY_{guard}_H_
{body}
#endif  // GANGWAY_{guard}_H_
"""


def header(guard: str, body: str = "") -> str:
    return HEADER.format(guard=guard, body=body)


CLEAN = {
    "gangway/base/CMakeLists.txt": "gangway_library(gangway_base SRCS clock.cc)\n",
    "gangway/base/clock.h": header("BASE_CLOCK"),
    "gangway/base/clock.cc": '// Real time.\n#include "gangway/base/clock.h"\n\n#include <ctime>\n',
    "gangway/client/include/gangway/client.h": header("CLIENT"),
    "gangway/worker/core/worker.h": header("WORKER_CORE_WORKER", '#include "gangway/base/clock.h"'),
    "docs/start.md": "# Start\n\nSee [the clock](../gangway/base/clock.h) and [x](https://x.org/).\n",
}


def tidy(root: pathlib.Path, files: dict[str, str], *flags: str) -> tuple[int, str]:
    for path, text in (CLEAN | files).items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    subprocess.run(["git", "init", "-q"], cwd=root, check=True, timeout=30)
    command = [sys.executable, str(TIDY), "--root", str(root), *flags]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return result.returncode, result.stdout + result.stderr


def test_a_clean_tree_passes(tmp_path: pathlib.Path) -> None:
    status, output = tidy(tmp_path, {})
    assert status == 0, output


BODY_OF_71_LINES = "\n".join(["void F() {", *["  G();"] * 69, "}"])
METHOD_OF_71_LINES = "\n".join(["class C {", "  void F() {", *["    G();"] * 69, "  }", "};"])
PYTHON_OF_71_LINES = '"""What."""\n\n\ndef f():\n' + "    f()\n" * 70

PLANTED = {
    "a role reads the system's clock": (
        {"gangway/worker/a.h": header("WORKER_A", "auto t = std::chrono::steady_clock::now();")},
        "only gangway/base may use steady_clock; use Clock or WallClock",
    ),
    "a role starts a thread of the system": (
        {"gangway/worker/a.h": header("WORKER_A", "std::thread thread;")},
        "only gangway/base may use std::thread; use Thread",
    ),
    "role includes role": (
        {"gangway/scheduler/a.h": header("SCHEDULER_A", '#include "gangway/controller/b.h"')},
        "scheduler may not include gangway/controller/b.h",
    ),
    "wire includes what is below it": (
        {"gangway/wire/a.h": header("WIRE_A", '#include "gangway/xla/b.h"')},
        "wire may not include gangway/xla/b.h",
    ),
    "front door includes transport": (
        {
            "gangway/frontdoor/ifrt/a.h": header(
                "FRONTDOOR_IFRT_A", '#include "gangway/transport/b.h"'
            )
        },
        "frontdoor may not include gangway/transport/b.h",
    ),
    "core includes its service": (
        {
            "gangway/worker/core/a.h": header(
                "WORKER_CORE_A", '#include "gangway/worker/service/b.h"'
            )
        },
        "worker/core may not include gangway/worker/service/b.h",
    ),
    "core has threads": (
        {"gangway/worker/core/a.h": header("WORKER_CORE_A", "#include <thread>")},
        "a core is pure and may not include <thread>",
    ),
    "folder without a layer": (
        {"gangway/misc/a.h": header("MISC_A")},
        "folder gangway/misc is not in [layers]",
    ),
    "own header not first": (
        {"gangway/base/clock.cc": '// Time.\n#include <ctime>\n#include "gangway/base/clock.h"\n'},
        'the first include must be "gangway/base/clock.h"',
    ),
    "core includes a service's folder": (
        {"gangway/worker/core/a.h": header("WORKER_CORE_A", '#include "gangway/store/b.h"')},
        "worker/core may not include gangway/store/b.h",
    ),
    "wrong guard": (
        {"gangway/base/a.h": header("BASE_B")},
        "the include guard must be GANGWAY_BASE_A_H_",
    ),
    "no opening comment": (
        {"gangway/base/clock.cc": '#include "gangway/base/clock.h"\n'},
        "a file opens with its contract",
    ),
    "source that nothing builds": (
        {"gangway/base/clock_test.cc": '// Time.\n#include "gangway/base/clock.h"\n'},
        "no CMakeLists.txt names this file",
    ),
    "long file": ({"gangway/base/a.h": header("BASE_A", "\n" * 600)}, "at most 600"),
    "long function": (
        {"gangway/base/a.h": header("BASE_A", BODY_OF_71_LINES)},
        "71 lines, at most 70",
    ),
    "long method": (
        {"gangway/base/a.h": header("BASE_A", METHOD_OF_71_LINES)},
        "71 lines, at most 70",
    ),
    "long Python function": ({"bench/a.py": PYTHON_OF_71_LINES}, "71 lines, at most 70"),
    "work without an owner": ({"bench/a.py": '"""What."""\n# TODO: more\n'}, "'TODO'"),
    "path of one machine": ({"docs/a.md": "Look into /work/main.\n"}, "'/work/'"),
    "long comment": (
        {"bench/a.py": f'"""What."""\n# {"word " * 25}\n'},
        "127 columns, at most 120",
    ),
    "long line of Markdown": ({"docs/a.md": "word " * 25 + "\n"}, "125 columns, at most 120"),
    "dead link": ({"docs/a.md": "See [b](b.md#part).\n"}, "dead link: b.md"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_violation_is_found_alone(tmp_path: pathlib.Path, name: str) -> None:
    files, message = PLANTED[name]
    status, output = tidy(tmp_path, files)
    assert status == 1
    assert message in output
    assert "tidy: 1 violations" in output, output


ALLOWED = {
    "a core includes its core and base": {
        "gangway/worker/core/a.h": header(
            "WORKER_CORE_A",
            '#include "gangway/base/clock.h"\n#include "gangway/worker/core/worker.h"',
        )
    },
    "the front door includes the client library": {
        "gangway/frontdoor/a.h": header("FRONTDOOR_A", '#include "gangway/client.h"')
    },
    "cli composes": {"gangway/cli/a.h": header("CLI_A", '#include "gangway/worker/core/worker.h"')},
    "an owner": {"bench/a.py": '"""What."""\n# TODO(ada): more\n'},
    "a function of 70 lines": {
        "gangway/base/a.h": header("BASE_A", BODY_OF_71_LINES.replace("  G();\n", "", 1))
    },
}


@pytest.mark.parametrize("name", ALLOWED)
def test_what_is_allowed_passes(tmp_path: pathlib.Path, name: str) -> None:
    status, output = tidy(tmp_path, ALLOWED[name])
    assert status == 0, output


def test_a_header_that_does_not_stand_alone_is_found(tmp_path: pathlib.Path) -> None:
    files = {"gangway/base/a.h": header("BASE_A", "inline std::string F() { return {}; }")}
    assert tidy(tmp_path, files)[0] == 0  # only the compiler sees it
    status, output = tidy(tmp_path, files, "--headers")
    assert status == 1
    assert "gangway/base/a.h:1: the header does not stand alone" in output


def test_files_that_git_ignores_are_left_alone(tmp_path: pathlib.Path) -> None:
    status, output = tidy(tmp_path, {".gitignore": "build/\n", "build/a.h": "no comment\n"})
    assert status == 0, output
