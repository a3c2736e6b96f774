"""The compiler launcher: clones share precompiled headers and what uses them, and a comment in one clone spoils none."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess

LAUNCHER = pathlib.Path(__file__).with_name("compile_cached")
HEADER = "#ifndef X_H_\n#define X_H_\ninline int F() { return 1; }\n#endif\n"


class Clone:
    """A source folder with a header, and a build folder in which clang precompiles it and compiles a source with it."""

    def __init__(self, folder: pathlib.Path, cache: pathlib.Path, header: str) -> None:
        self.root, self.build = folder, folder / "build"
        self.build.mkdir(parents=True)
        (folder / "tools").mkdir()
        (folder / "tools" / "compile_cached").symlink_to(LAUNCHER)
        (folder / "x.h").write_text(header)
        (folder / "a.cc").write_text("int main() { return F(); }\n")
        (self.build / "pch.hxx").write_text("#include <x.h>\n")
        (self.build / "pch.hxx.cxx").write_text("")  # as CMake does it
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("CCACHE_")}
        self.environment |= {"CCACHE_DIR": str(cache), "GANGWAY_SOURCE": str(folder)}

    def clang(self, *arguments: str) -> None:
        flags = ["clang++-19", f"-I{self.root}", "-Xclang", "-fno-pch-timestamp", *arguments]
        subprocess.run([LAUNCHER, *flags], cwd=self.build, env=self.environment, check=True)

    def compile(self) -> int:
        """The number of compiles that ccache could answer, of two."""
        before = self.hits()
        pch = f"{self.build}/pch.hxx"
        source = ["-MD", "-MF", "a.d", "-o", "a.o", "-c", f"{self.root}/a.cc"]
        made = ["-MD", "-MF", "pch.d", "-x", "c++-header", "-o", "pch.hxx.pch", "-c", f"{pch}.cxx"]
        self.clang("-Xclang", "-emit-pch", "-Xclang", "-include", "-Xclang", pch, *made)
        used = ["-Xclang", "-include-pch", "-Xclang", f"{pch}.pch"]
        self.clang(*used, "-Xclang", "-include", "-Xclang", pch, *source)
        return self.hits() - before

    def hits(self) -> int:
        command = ["ccache", "--print-stats"]
        told = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, check=True
        )
        return sum(
            map(int, re.findall(r"^(?:direct|preprocessed)_cache_hit\t(\d+)$", told.stdout, re.M))
        )


def test_clones_share_what_they_compile(tmp_path: pathlib.Path) -> None:
    cache = tmp_path / "cache"
    assert Clone(tmp_path / "a", cache, HEADER).compile() == 0
    assert Clone(tmp_path / "b", cache, HEADER).compile() == 2


def test_a_comment_in_one_clone_spoils_no_other(tmp_path: pathlib.Path) -> None:
    cache = tmp_path / "cache"
    Clone(tmp_path / "a", cache, HEADER).compile()
    Clone(tmp_path / "b", cache, HEADER.replace("#endif", "#endif  // X_H_")).compile()
    other = Clone(tmp_path / "c", cache, HEADER)
    (other.root / "a.cc").write_text("int main() { return F() + 1; }\n")  # for which clang reads it
    assert other.compile() == 1
