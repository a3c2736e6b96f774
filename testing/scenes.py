"""Tests whose waits elapse together. Each is a scene, a function that runs in a thread of its own: it prepares its
clusters and clients, waits until all selected scenes are prepared, then stops or cuts a process and checks what
follows, within limits that count from its own beginning.

A Stage belongs to the thread of its scene. A scene closes what it opens; what its stage has made ends after it. A scene
fails by an exception, which its own test raises again. The other scenes go on.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import pathlib
import re
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from harness import PATIENCE, Cluster
from hosts import ByHand

PREPARING_MAX = 2  # scenes at a time: starting a cluster and its clients costs CPU time
CALM_S = 12.0  # from the gate's opening until most scenes have ended
STEP_S = 0.2  # between the beginnings of two scenes, so that not all that follows them coincides
PREPARED_S = 200  # until the gate opens without those that still prepare
ENDED_S = 90  # from the gate's opening to the end of each scene, unless it says otherwise
LOG_BYTES_MAX = 3000


class Gate:
    """Opens when each scene has arrived, or has ended without arriving."""

    def __init__(self, names: list[str]) -> None:
        self._turns = threading.Semaphore(PREPARING_MAX)
        self._missing = threading.Condition()
        self._order = names
        self._names = set(names)  # of those that still prepare; guarded by _missing
        self.opened_at = 0.0

    def enter(self) -> None:
        """Waits for a turn to prepare."""
        self._turns.acquire()

    def arrive(self, name: str) -> None:
        """Gives the turn back."""
        with self._missing:
            self._names.remove(name)
            self._missing.notify_all()
        self._turns.release()

    def open(self) -> None:
        with self._missing:
            self._missing.wait_for(lambda: not self._names, PREPARED_S * PATIENCE)
            self.opened_at = time.monotonic()
            self._missing.notify_all()

    def wait(self, name: str, calm: bool) -> None:
        """Returns at the scene's own moment after the opening."""
        with self._missing:
            limit_s = (PREPARED_S + 10) * PATIENCE
            assert self._missing.wait_for(lambda: self.opened_at, limit_s), self._names
        after_s = STEP_S * self._order.index(name)
        if calm and len(self._order) > 1:
            after_s = max(after_s, CALM_S)
        time.sleep(max(0, self.opened_at + after_s - time.monotonic()))


@dataclasses.dataclass
class Outcome:
    error: BaseException | None = None
    said: list[str] = dataclasses.field(default_factory=list)
    logs: dict[str, str] = dataclasses.field(default_factory=dict)  # of a scene that failed

    def give(self, item: pytest.Item) -> None:
        """Makes it the outcome of this test."""
        print("\n".join(self.said))
        for name, text in self.logs.items():
            item.add_report_section("call", name, text)
        if self.error:
            raise self.error.with_traceback(self.error.__traceback__)


class Stage:
    """What a scene has: a folder of its own, clusters that end after it, and the gate."""

    def __init__(self, name: str, folder: pathlib.Path, gate: Gate, outcome: Outcome) -> None:
        self.folder = folder
        self.ends = contextlib.ExitStack()
        self._name = name
        self._gate = gate
        self._outcome = outcome
        self._arrived = False
        self._clusters: list[Cluster] = []

    def new_cluster(self, *arguments: int | str, **names: str) -> Cluster:
        """A cluster, not yet started: `new_cluster(islands, workers, devices, *flags)`."""
        made = Cluster(*arguments, **names)  # type: ignore[arg-type]
        self._clusters.append(made)
        self.ends.callback(made.stop)
        return made

    def by_hand(self) -> ByHand:
        """A controller without workers."""
        made = ByHand(self.folder)
        self.ends.callback(made.stop)
        return made.start()

    def begin(self, *, calm: bool = False) -> None:
        """Waits until all scenes are prepared; with `calm`, for a tight limit, until most have ended."""
        self._arrive()
        self._gate.wait(self._name, calm)

    def say(self, *words: object) -> None:
        """Prints in this scene's own test."""
        self._outcome.said.append(" ".join(map(str, words)))

    def perform(self, body: Callable[[Stage], None]) -> None:
        self._gate.enter()
        began = time.monotonic()
        try:
            with self.ends, self._kept_logs():
                body(self)
                assert self._arrived, "the scene ended without having begun"
        except BaseException as error:
            self._outcome.error = error
        finally:
            self._arrive()
        ended = time.monotonic()
        self.say(
            f"{ended - began:.1f} s, of them {ended - self._gate.opened_at:.1f} s after the gate"
        )

    def _arrive(self) -> None:
        if not self._arrived:
            self._arrived = True
            self._gate.arrive(self._name)

    @contextlib.contextmanager
    def _kept_logs(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            for cluster in self._clusters:
                self._outcome.logs[f"logs of {cluster.port}"] = cluster.logs(LOG_BYTES_MAX)
            for log in sorted(self.folder.rglob("*.log")):
                text = log.read_text(errors="replace")[-LOG_BYTES_MAX:]
                self._outcome.logs[str(log.relative_to(self.folder))] = text
            raise


_bodies: dict[Callable[..., None], Callable[..., None]] = {}  # of each test


def scene(body: Callable[..., None]) -> Callable[..., None]:
    """Makes a test of `body(stage, **parameters)`. It takes its outcome from the fixture `outcomes` of its module."""

    @functools.wraps(body)
    def test(request: pytest.FixtureRequest, outcomes: dict[str, Outcome], **_: Any) -> None:
        outcomes[request.node.nodeid].give(request.node)

    parameters = list(inspect.signature(body).parameters.values())[1:]
    fixtures = [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        for name in ("request", "outcomes")
    ]
    test.__signature__ = inspect.Signature([*fixtures, *parameters])  # type: ignore[attr-defined]
    _bodies[test] = body
    return test


def perform_selected(
    request: pytest.FixtureRequest, folder: pathlib.Path, together_max: int
) -> dict[str, Outcome]:
    """Runs the scene of each selected test of the requesting module, and returns the outcomes by the tests' ids. At most
    `together_max` wait at one gate; those of the next gate follow.
    """
    selected: dict[str, Callable[[Stage], None]] = {}
    for item in request.session.items:
        if not isinstance(item, pytest.Function) or item.module is not request.module:
            continue
        if item.function in _bodies:
            parameters = item.callspec.params if hasattr(item, "callspec") else {}
            selected[item.nodeid] = functools.partial(_bodies[item.function], **parameters)
    outcomes: dict[str, Outcome] = {}
    names = list(selected)
    for first in range(0, len(names), together_max):
        together = names[first : first + together_max]
        outcomes |= _perform_together({name: selected[name] for name in together}, folder)
    return outcomes


def _perform_together(
    bodies: dict[str, Callable[[Stage], None]], folder: pathlib.Path
) -> dict[str, Outcome]:
    gate = Gate(list(bodies))
    outcomes = {name: Outcome() for name in bodies}
    threads = {}
    for name, body in bodies.items():
        short = re.sub(r"\W+", "-", name.rpartition("::")[2])[:30]  # paths of sockets are short
        own = tempfile.mkdtemp(prefix=f"{short}-", dir=folder)
        stage = Stage(name, pathlib.Path(own), gate, outcomes[name])
        threads[name] = threading.Thread(target=stage.perform, args=(body,), name=name, daemon=True)
        threads[name].start()
    gate.open()
    for name, thread in threads.items():
        thread.join(max(0, gate.opened_at + ENDED_S * PATIENCE - time.monotonic()))
        if thread.is_alive():
            frame = sys._current_frames().get(thread.ident or 0)
            at = "".join(traceback.format_stack(frame)) if frame else ""
            text = (
                f"the scene did not end within {ENDED_S * PATIENCE} s of the gate; it is at\n{at}"
            )
            outcomes[name] = Outcome(AssertionError(text))
    return outcomes
