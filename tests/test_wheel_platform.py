"""On which systems the wheel can be built and runs (tools/wheel_platform.py); test_wheel.py builds one and runs it."""

from __future__ import annotations

import os
import pathlib
import platform
import re
import shutil
import subprocess

import pytest
import wheel_platform
from harness import GANGWAY, ROOT

DEBIAN_12 = {"ID": "debian", "VERSION_ID": "12", "PRETTY_NAME": "Debian GNU/Linux 12 (bookworm)"}


def libraries_of(binary: pathlib.Path) -> set[pathlib.Path]:
    """As the wheel's build finds them: all but those of the system."""
    told = subprocess.run(["ldd", binary], capture_output=True, text=True, check=True).stdout
    found = re.findall(r"^\s*(\S+) => (\S+)", told, re.MULTILINE)
    return {pathlib.Path(path) for name, path in found if name not in wheel_platform.SYSTEM}


def test_no_file_needs_a_newer_glibc_than_that_of_ubuntu_22_04() -> None:
    openblas = next(pathlib.Path("/usr/lib").glob("*/openblas-pthread/libopenblas.so.0"))
    binary = pathlib.Path(GANGWAY).resolve()
    built = binary.parent.parent / "frontdoor" / "pjrt"
    files = [binary, openblas, *built.glob("libgangway_pjrt*.so")]
    assert len(files) == 4
    for file in (binary, openblas):
        files.extend(libraries_of(file))
    assert wheel_platform.platform_of(files) == "manylinux_2_35_x86_64"


def test_a_library_that_the_wheel_lacks_is_named() -> None:
    binary = pathlib.Path(GANGWAY).resolve()
    with pytest.raises(ValueError, match=r"the wheel lacks .*'libssl\.so\.3': 'gangway'"):
        wheel_platform.platform_of([binary])


@pytest.fixture
def debian_12(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(platform, "freedesktop_os_release", lambda: DEBIAN_12)
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(os, "confstr", lambda name: "glibc 2.36")
    return monkeypatch


def message() -> str:
    with pytest.raises(SystemExit) as ended:
        wheel_platform.check_machine()
    return str(ended.value)


def test_debian_12_is_fit(debian_12: pytest.MonkeyPatch) -> None:
    name = "Debian GNU/Linux 12 (bookworm), x86_64, glibc 2.36"
    assert wheel_platform.describe_machine() == (name, "")


def test_arm_is_not(debian_12: pytest.MonkeyPatch) -> None:
    debian_12.setattr(platform, "machine", lambda: "aarch64")
    assert "12 (bookworm), aarch64, glibc 2.36): XLA's CPU plugin, as pinned, is for" in message()


def test_nor_is_musl(debian_12: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> str:
        raise ValueError("unrecognized configuration name")

    debian_12.setattr(os, "confstr", refuse)
    release = {"ID": "alpine", "PRETTY_NAME": "Alpine Linux v3.22"}
    debian_12.setattr(platform, "freedesktop_os_release", lambda: release)
    assert "(Alpine Linux v3.22, x86_64, not glibc): XLA's CPU plugin needs glibc" in message()


def test_nor_is_another_distribution(debian_12: pytest.MonkeyPatch) -> None:
    ubuntu = {"ID": "ubuntu", "VERSION_ID": "22.04", "PRETTY_NAME": "Ubuntu 22.04.5 LTS"}
    debian_12.setattr(platform, "freedesktop_os_release", lambda: ubuntu)
    told = message()
    assert "(Ubuntu 22.04.5 LTS, x86_64, glibc 2.36): the versions of its libraries" in told
    assert "`make wheel`" in told and "glibc 2.35 or newer" in told


def test_missing_packages_are_named_in_one_message(
    debian_12: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    """Where dpkg knows CMake alone, and Ninja in another version."""
    fake = tmp_path / "dpkg-query"
    fake.write_text("#!/bin/sh\necho cmake 3.25.1-1 installed\necho ninja-build 1.10 installed\n")
    fake.chmod(0o755)
    debian_12.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    told = message()
    (line,) = re.findall(r"^ +apt-get install --no-install-recommends (.*)$", told, re.MULTILINE)
    assert {"'ninja-build=1.11.1*'", "'libgrpc++-dev=1.51.1*'", "'mold=1.10.1*'"} <= set(
        line.split()
    )
    assert "cmake" not in told and "clang" not in told  # clang checks, and does not build
    assert "Or let tools/setup.sh do all of it" in told
    assert ".deps" not in told  # which is here


def test_a_missing_folder_alone(debian_12: pytest.MonkeyPatch) -> None:
    told = wheel_platform.what_is_missing([], has_deps=False)
    assert "the folder .deps" in told and "tools/setup.sh --deps\n" in told
    assert "apt-get" not in told
    assert wheel_platform.what_is_missing([], has_deps=True) == ""


def test_setup_says_what_is_missing_without_installing(tmp_path: pathlib.Path) -> None:
    """A copy of the repository's setup, in which one version is another."""
    for name in ("tools/setup.sh", "tools/versions/apt.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    with (tmp_path / "tools/versions/apt.txt").open("a") as pins:
        pins.write("nothing-has-this-name 1.*\n")
    setup = str(tmp_path / "tools" / "setup.sh")
    told = subprocess.run([setup, "--missing"], capture_output=True, text=True, check=True)
    assert told.stdout == "nothing-has-this-name=1.*\n"
    assert {path.name for path in tmp_path.iterdir()} == {"tools"}
