"""The harness itself: forked clients are processes of their own, and kept outcomes depend on their sources."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import signal
import socket
import subprocess
import threading
import time

import harness
import pytest
from case_runs import kept, reference_key
from harness import (
    PATIENCE,
    ROOT,
    Client,
    client_environment,
    run_client,
    settled_descriptors,
    wait_for,
)
from native_programs import check_built

PROGRAM = """
import os, sys
print(sys.argv, os.environ["GANGWAY_PORT"], "jax" in sys.modules, input(), flush=True)
print("to stderr", file=sys.stderr)
sys.exit(7)
"""


def test_a_forked_client_has_streams_environment_and_status_of_its_own(
    tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    clients = [Client(program, port) for port in (1, 2)]
    for client, word in zip(clients, ("one", "two"), strict=True):
        client.stdin.write(word + "\n")
        client.stdin.flush()
    said = [client.stdout.readline().strip() for client in clients]
    assert said == [f"['{program}'] 1 True one", f"['{program}'] 2 True two"]
    assert [client.wait(10 * PATIENCE) for client in clients] == [7, 7]
    assert capfd.readouterr().err.count("to stderr") == 2
    assert clients[0].pid != clients[1].pid != os.getpid()
    for client in clients:
        client.close()


def test_a_text_runs_to_its_end() -> None:
    done = run_client(
        "import os\nprint(os.environ['WORD'], end='')\n1 / 0", 1, environment={"WORD": "one"}
    )
    assert (done.returncode, done.stdout) == (1, "one")
    assert done.stderr.splitlines()[-1] == "ZeroDivisionError: division by zero"
    assert run_client("import signal; signal.pause()", 1, timeout_s=0.1).returncode == -9


def test_a_killed_client_has_ended_with_its_signal(tmp_path: pathlib.Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("input()")
    client = Client(program, 1)
    client.close()
    assert client.returncode == -9
    assert client.stdout.closed


def forked(*command: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [str(ROOT / "testing" / "forked_python.py"), *command],
        env={**client_environment(1), **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_forked_python_is_as_a_new_one(tmp_path: pathlib.Path) -> None:
    (tmp_path / "beside.py").write_text("NAME = 'a module beside the file'")
    (tmp_path / "program.py").write_text(f"import beside\nprint(beside.NAME){PROGRAM}")
    file, text = forked(str(tmp_path / "program.py"), "-x"), forked("-c", PROGRAM, "y")
    for script, beside, arguments in [
        (file, "a module beside the file\n", [str(tmp_path / "program.py"), "-x"]),
        (text, "", ["-c", "y"]),
    ]:
        out, err = script.communicate("one\n", timeout=30 * PATIENCE)
        assert (out, err) == (f"{beside}{arguments} 1 True one\n", "to stderr\n")
        assert script.returncode == 7
    module = forked("-m", "this")
    assert "Beautiful is better than ugly" in module.communicate(timeout=30 * PATIENCE)[0]
    assert module.returncode == 0


# Where a run in the background starts it, it ignores SIGINT at first.
WAITS = """
import os, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
print(os.getpid(), flush=True)
signal.pause()
"""


def started(text: str) -> tuple[subprocess.Popen[str], int]:
    """A script that says the id of its process."""
    script = forked("-c", text)
    assert script.stdout
    pid = int(script.stdout.readline())
    assert pid != script.pid
    return script, pid


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_forked_python_and_its_script_end_together(number: signal.Signals) -> None:
    script, pid = started(WAITS)
    script.send_signal(number)
    assert script.wait(30 * PATIENCE) == -number
    wait_for("the script's end", lambda: not pathlib.Path(f"/proc/{pid}").exists(), 10)
    script, pid = started(WAITS)
    os.kill(pid, number)
    assert script.wait(30 * PATIENCE) == -number


def test_processes_are_forked_whenever_their_requesters_end() -> None:
    for milliseconds in range(0, 60, 3):
        script = forked("-c", "pass")
        with contextlib.suppress(subprocess.TimeoutExpired):
            script.wait(milliseconds / 1000)
        script.kill()
        script.wait(10 * PATIENCE)
    assert run_client("print('forked')", 1).stdout == "forked\n"


def test_a_signal_may_cross_the_end_of_its_process() -> None:
    """The server then closes the connection before it has read all: a reset, one in ten times."""
    for _ in range(60):
        client = Client("input()", 1)
        client.kill()
        client.stdout.read()
        client.close()
        assert client.returncode == -9


def test_a_text_is_the_main_module() -> None:
    text = """
import atexit, pickle, sys, weakref
class Point:
    x: int
assert Point.__annotations__ == {"x": int}
pickle.loads(pickle.dumps(Point()))
alive = Point()
alive_at_exit = weakref.ref(alive)
atexit.register(lambda: print(alive_at_exit() is not None))
"""
    done = run_client(text, 1)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


def test_a_python_is_started_for_variables_that_jax_reads_when_imported() -> None:
    text = "import os, sys; print('jax' in sys.modules, os.getpid(), end='')"
    script = forked("-c", text, JAX_PLATFORMS="cpu")
    assert script.communicate(timeout=30 * PATIENCE)[0] == f"False {script.pid}"


def test_an_outcome_is_kept_until_a_source_changes(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GANGWAY_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("GANGWAY_NIGHTLY", raising=False)
    source, computed = tmp_path / "source.py", []

    def outcome(flags: list[str]) -> object:
        def compute() -> str:
            computed.append(flags)
            return source.read_text()

        return kept(reference_key(flags, [source]), compute)

    source.write_text("first")
    assert [outcome(["a"]), outcome(["a"])] == ["first", "first"] and len(computed) == 1
    assert outcome(["b"]) == "first" and len(computed) == 2
    source.write_text("second")
    assert outcome(["a"]) == "second" and len(computed) == 3
    monkeypatch.setenv("GANGWAY_NIGHTLY", "1")
    assert outcome(["a"]) == "second" and len(computed) == 4


def test_a_native_program_that_is_older_than_its_source_is_refused_by_name(
    tmp_path: pathlib.Path,
) -> None:
    source, program = tmp_path / "source", tmp_path / "program"
    (tmp_path / "build.ninja").write_text(
        "rule copy\n  command = cp $in $out\nbuild program: copy source\n"
    )
    source.write_text("first")
    refusal = re.escape(f"(tools/build.sh {tmp_path.name} program)")
    with pytest.raises(AssertionError, match=f"program is missing in {tmp_path}.*{refusal}"):
        check_built("program", tmp_path)
    subprocess.run(["ninja", "-C", str(tmp_path)], check=True, capture_output=True)
    check_built("program", tmp_path)
    check_built.cache_clear()
    os.utime(source, (program.stat().st_mtime + 1,) * 2)
    with pytest.raises(AssertionError, match="or older than its sources: build it first"):
        check_built("program", tmp_path)


def test_a_census_counts_a_socket_whose_peer_has_closed_unless_it_is_closed_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise it counts the connection of its own `gangway status`, or not, as it happens."""
    monkeypatch.setattr(harness, "ENDED_S", 2 / PATIENCE)
    own = os.getpid()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        before = settled_descriptors(own)
        for left in (0, 1):
            with socket.create_connection(listener.getsockname()) as peer:
                accepted, _ = listener.accept()
                assert settled_descriptors(own) == before + 2  # both ends, and at once
                peer.shutdown(socket.SHUT_RDWR)
            with contextlib.ExitStack() as ends:
                if not left:
                    closes = threading.Timer(0.1, accepted.close)
                    closes.start()
                    ends.callback(closes.join)
                began = time.monotonic()
                assert settled_descriptors(own) == before + left
                assert (time.monotonic() - began >= 2) == bool(left)
        accepted.close()
