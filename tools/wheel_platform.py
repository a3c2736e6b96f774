"""On which systems a wheel can be built, and on which it runs: used by wheel_backend.py, and by tests.

A wheel is built on Debian 12 with the packages of tools/versions/apt.txt, and holds every shared library but those of
the C library and the C++ runtime. So the versions of symbols that it needs of these say where it runs.
"""

from __future__ import annotations

import os
import pathlib
import platform
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable

ROOT = pathlib.Path(__file__).resolve().parent.parent

# The shared libraries of the system, which each system of a manylinux tag has.
SYSTEM = {
    *("libc.so.6", "libm.so.6", "libdl.so.2", "librt.so.1", "libpthread.so.0", "libresolv.so.2"),
    *("ld-linux-x86-64.so.2", "libstdc++.so.6", "libgcc_s.so.1"),
}
# Packages of apt.txt that check or hasten the repository's builds: a wheel can be made without them. mold is not one
# of them, since GNU's linker refuses Debian's static libre2 in a shared library.
NOT_NEEDED = re.compile(r"(ccache|clang|git|libclang|llvm|shellcheck|wget)\b")


def describe_machine() -> tuple[str, str]:
    """Names this system, and says what makes it unfit to build on; empty if nothing does."""
    try:
        libc = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):
        libc = ""
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        release = {}
    name = f"{release.get('PRETTY_NAME', platform.system())}, {platform.machine()}"
    name += f", {libc}" if libc else ", not glibc"
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return name, "XLA's CPU plugin, as pinned, is for Linux on x86_64"
    if not libc:
        return name, "XLA's CPU plugin needs glibc"
    if (release.get("ID"), release.get("VERSION_ID")) != ("debian", "12"):
        return name, "the versions of its libraries are pinned to those of Debian 12"
    return name, ""


def missing_packages() -> list[str]:
    """As apt-get takes them: name=version, where the version is a pattern."""
    told = subprocess.run(
        [ROOT / "tools" / "setup.sh", "--missing"], stdout=subprocess.PIPE, text=True, check=True
    )
    return [line for line in told.stdout.split() if not NOT_NEEDED.match(line)]


def what_is_missing(packages: list[str], has_deps: bool) -> str:
    """A message for the user; empty if nothing is missing."""
    if not packages and has_deps:
        return ""
    text = "This machine lacks what the build of Gangway needs:\n"
    if packages:
        quoted = " ".join(f"'{package}'" for package in packages)
        text += (
            f"  - {len(packages)} Debian packages, or their pinned versions. As root:\n"
            f"      apt-get install --no-install-recommends {quoted}\n"
        )
    if not has_deps:
        text += (
            "  - the folder .deps, with XLA's CPU plugin and sources of abseil and protobuf. In the "
            "source's folder:\n      tools/setup.sh --deps\n"
        )
    return text + (
        "Or let tools/setup.sh do all of it: it also installs what the repository's checks need."
    )


def check_machine() -> None:
    """Exits with a message unless this machine can build a wheel."""
    name, unfit = describe_machine()
    if unfit:
        sys.exit(
            f"Gangway cannot be built on this system ({name}): {unfit}.\nMake the wheel on Debian "
            "12, x86_64, by `make wheel`. It installs on x86_64 systems with glibc 2.35 or newer "
            "(Debian 12, Ubuntu 22.04) and Python 3.11 or newer."
        )
    if text := what_is_missing(missing_packages(), (ROOT / ".deps" / "gangway-stamp").exists()):
        sys.exit(text)


def needs(file: pathlib.Path) -> tuple[set[str], int]:
    """The libraries that an ELF file needs, and the minor version of the glibc 2.x whose symbols it needs."""
    told = subprocess.run(
        ["objdump", "-p", file],
        env={**os.environ, "LC_ALL": "C"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    libraries = set(re.findall(r"^ *NEEDED +(\S+)$", told, re.MULTILINE))
    return libraries, max(
        (int(minor) for minor in re.findall(r"\bGLIBC_2\.(\d+)", told)), default=0
    )


def platform_of(files: Iterable[pathlib.Path]) -> str:
    """The platform tag for all of a wheel's files: PEP 600's, by the newest glibc that one of them needs.
    ValueError: a file needs a library that neither the wheel nor every system has."""
    minor, needed, own = 0, {}, set()
    for file in files:
        own.add(file.name)
        with file.open("rb") as opened:
            if opened.read(4) != b"\x7fELF":
                continue
        libraries, least = needs(file)
        minor = max(minor, least)
        needed.update(dict.fromkeys(libraries, file.name))
    if lacking := {name: by for name, by in needed.items() if name not in SYSTEM | own}:
        raise ValueError(
            f"the wheel lacks {lacking} (library: by which it is needed); see cmake/GangwayWheel.cmake"
        )
    return f"manylinux_2_{minor}_x86_64"


def tag(wheel: pathlib.Path) -> pathlib.Path:
    """Gives the wheel its platform tag, and with it another name."""
    with tempfile.TemporaryDirectory(dir=wheel.parent) as folder, zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
        found = platform_of(path for path in pathlib.Path(folder).rglob("*") if path.is_file())
    told = subprocess.run(
        [sys.executable, "-m", "wheel", "tags", "--remove", "--platform-tag", found, wheel],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return wheel.parent / told.stdout.split()[-1]
