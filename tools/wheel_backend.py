"""The build backend of pyproject.toml: scikit-build-core's, which first says what this machine lacks, and whose wheels
have the tag of the systems on which they run (wheel_platform.py).
"""

from __future__ import annotations

import os
import pathlib
from typing import Any

import wheel_platform
from scikit_build_core import build
from scikit_build_core.build import (
    build_editable,
    build_sdist,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]


def get_requires_for_build_wheel(settings: dict[str, Any] | None = None) -> list[str]:
    wheel_platform.check_machine()
    return build.get_requires_for_build_wheel(settings)


def get_requires_for_build_editable(settings: dict[str, Any] | None = None) -> list[str]:
    wheel_platform.check_machine()
    return build.get_requires_for_build_editable(settings)


def build_wheel(
    folder: str, settings: dict[str, Any] | None = None, metadata: str | None = None
) -> str:
    wheel_platform.check_machine()  # `pip install --no-build-isolation` asks for no requirements
    # Unless the user names a compiler, that of the repository's builds, whose results ccache then has.
    # scikit-build-core would take the one that Python was built with.
    os.environ.setdefault("CXX", "c++")
    made = build.build_wheel(folder, settings, metadata)
    return wheel_platform.tag(pathlib.Path(folder) / made).name
