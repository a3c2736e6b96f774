"""Scripts that reach a cluster of other hosts through the PJRT plugin: over mutual TLS, by loopback addresses that stand
for hosts, with no door process. The suite of test_jax.py runs so, too.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
from collections.abc import Iterator

import pytest
from harness import (
    GANGWAY,
    NEW_PYTHON,
    PATIENCE,
    PYTHON,
    ROOT,
    Cluster,
    client_environment,
    free_port,
    run_client,
    wait_for,
)
from hosts import SCRIPT, SUM, Hosts
from test_beside_others import OTHERS

pytestmark = pytest.mark.timeout(150)

CONNECT = "import gangway; gangway.connect()\n"


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    made = Hosts(tmp_path_factory.mktemp("hosts"), tls=True)
    made.start_controller()
    made.start_workers()
    try:
        made.wait_for("controller", "ready: ")
        yield made
    finally:
        made.stop()


def run(
    hosts: Hosts, text: str = CONNECT + SCRIPT, **environment: str
) -> subprocess.CompletedProcess[str]:
    settings = {
        "GANGWAY_ADDRESS": f"127.0.0.1:{hosts.control}",
        "GANGWAY_TLS": str(hosts.folder / "tls"),
        "GANGWAY_STATE_DIR": str(hosts.folder / "none"),
        **environment,
    }
    return run_client(text, 1, "pjrt", settings)


def refusal(ran: subprocess.CompletedProcess[str]) -> str:
    assert ran.returncode == 1, ran.stdout + ran.stderr
    return ran.stderr.strip().splitlines()[-1]


def copy_of(hosts: Hosts, folder: pathlib.Path) -> pathlib.Path:
    shutil.copytree(hosts.folder / "tls", folder)
    return folder


def test_a_script_uses_a_remote_cluster_without_a_door(hosts: Hosts) -> None:
    doors = "import os, psutil\nprint(len(psutil.Process().children()))\n"
    ran = run(hosts, CONNECT + SCRIPT + doors)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    result, children = ran.stdout.strip().splitlines()
    count, _, sums = result.partition(" ")
    assert int(count) == 3 and all(abs(s / SUM - 1) < 1e-5 for s in eval(sums))
    assert children == "0"
    assert ran.stderr == "", "nothing complains when the script ends"


def test_bytes_of_all_sizes_pass(hosts: Hosts) -> None:
    text = """
import jax, numpy as np
f = jax.jit(lambda x: x + 1)
for count in [1, 1000, 1 << 16, 5 << 20]:
    x = np.arange(count, dtype=np.int32)
    for device in jax.devices():
        assert (np.asarray(f(jax.device_put(x, device))) == x + 1).all(), (count, device)
"""
    ran = run(hosts, CONNECT + text)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("order", ["before", "after"])
def test_grpcio_works_in_the_same_process(hosts: Hosts, order: str) -> None:
    """The process then holds gRPC twice."""
    theirs = OTHERS["grpcio"] + "use()\n"
    ran = run(
        hosts, (theirs + CONNECT if order == "before" else CONNECT + theirs) + SCRIPT + "use()\n"
    )
    assert ran.returncode == 0 and ran.stdout.startswith("3 "), ran.stdout + ran.stderr


def test_address_and_folder_are_options_of_connect(hosts: Hosts) -> None:
    where = f"gangway.connect('127.0.0.1:{hosts.control}', tls={str(hosts.folder / 'tls')!r})\n"
    text = "import gangway\n" + where + SCRIPT
    ran = run(hosts, text, GANGWAY_ADDRESS="", GANGWAY_TLS="", GANGWAY_DOOR="")
    assert ran.returncode == 0 and ran.stdout.startswith("3 "), ran.stdout + ran.stderr


def test_the_session_has_the_given_name(hosts: Hosts) -> None:
    text = CONNECT + "import jax; jax.devices(); input()\n"
    with subprocess.Popen(
        [PYTHON, "-c", text],
        env={
            **client_environment(1, "pjrt"),
            "GANGWAY_ADDRESS": f"127.0.0.1:{hosts.control}",
            "GANGWAY_TLS": str(hosts.folder / "tls"),
            "GANGWAY_SESSION": "night run 7",
        },
        stdin=subprocess.PIPE,
    ) as script:
        try:
            wait_for("the session's name", lambda: "night run 7" in str(hosts.status()), 30)
        finally:
            script.communicate(b"\n", timeout=30)


def test_a_wrong_token_is_rejected(hosts: Hosts) -> None:
    said = refusal(run(hosts, GANGWAY_TOKEN="wrong"))
    assert "token" in said, said


def test_a_certificate_of_another_authority_is_rejected(
    hosts: Hosts, tmp_path: pathlib.Path
) -> None:
    other = tmp_path / "other"
    assert hosts.run("certs", str(other)).returncode == 0
    shutil.copy(hosts.folder / "tls" / "token", other / "token")
    said = refusal(run(hosts, GANGWAY_TLS=str(other)))
    assert "is not from that cluster's CA" in said and "gangway certs" in said, said


def test_no_controller_at_the_address_is_named(hosts: Hosts) -> None:
    address = f"127.0.0.1:{free_port()}"
    said = refusal(run(hosts, GANGWAY_ADDRESS=address))
    assert "UNAVAILABLE" in said and address in said, said


@pytest.mark.parametrize("address", ["nonsense", "127.0.0.1:", "127.0.0.1:99999", ":80"])
def test_a_malformed_address_is_named(hosts: Hosts, address: str) -> None:
    said = refusal(run(hosts, GANGWAY_ADDRESS=address))
    assert "INVALID_ARGUMENT" in said and address in said, said


def test_another_host_needs_a_tls_folder_SE_1(hosts: Hosts) -> None:
    said = refusal(run(hosts, GANGWAY_ADDRESS="10.0.0.1:80", GANGWAY_TLS="", GANGWAY_TOKEN="a"))
    assert "INVALID_ARGUMENT" in said and "loopback" in said, said


@pytest.mark.parametrize("name", ["ca.pem", "cert.pem", "key.pem", "token"])
def test_a_missing_file_of_the_folder_is_named(
    hosts: Hosts, tmp_path: pathlib.Path, name: str
) -> None:
    folder = copy_of(hosts, tmp_path / "tls")
    (folder / name).unlink()
    said = refusal(run(hosts, GANGWAY_TLS=str(folder)))
    assert str(folder / name) in said, said


def test_a_key_that_others_can_read_is_refused(hosts: Hosts, tmp_path: pathlib.Path) -> None:
    folder = copy_of(hosts, tmp_path / "tls")
    os.chmod(folder / "key.pem", 0o644)
    said = refusal(run(hosts, GANGWAY_TLS=str(folder)))
    assert "PERMISSION_DENIED" in said and "chmod 600" in said, said


def test_the_library_with_grpc_is_needed_and_named(hosts: Hosts, tmp_path: pathlib.Path) -> None:
    alone = shutil.copy(ROOT / "bin" / "libgangway_pjrt.so", tmp_path)
    said = refusal(run(hosts, GANGWAY_PJRT_PLUGIN=str(alone)))
    assert "libgangway_pjrt_grpc.so" in said and str(tmp_path) in said, said


def test_only_a_remote_script_loads_grpc(hosts: Hosts, cluster: Cluster) -> None:
    text = CONNECT + "print('pjrt_grpc' in open('/proc/self/maps').read())\n"
    assert run(hosts, text).stdout == "True\n"
    here = {**client_environment(cluster.port, "pjrt")}
    ran = subprocess.run([PYTHON, "-c", text], env=here, capture_output=True, text=True)
    assert ran.stdout == "False\n", ran.stderr


def gangway_run(hosts: Hosts, *flags: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`gangway run FLAGS script.py`, from a host without the cluster's state folder."""
    script = hosts.folder / "runtime.py"
    script.write_text(
        SCRIPT + "import jax, psutil\n"
        "print(jax.devices()[0].client.runtime_type.split('/')[0], psutil.Process().children())\n"
    )
    settings = {
        "GANGWAY_DOOR": "",
        "GANGWAY_STATE_DIR": str(hosts.folder / "none"),
        **NEW_PYTHON,
        **environment,
    }
    return subprocess.run(
        [str(GANGWAY), "run", *flags, str(script)],
        env={**hosts.environment, **settings},
        capture_output=True,
        text=True,
        timeout=60 * PATIENCE,
    )


def test_run_connects_without_a_door_by_default(hosts: Hosts) -> None:
    ran = gangway_run(hosts, *hosts.connect_flags())
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.splitlines()[-1] == "pjrt_ifrt []"


@pytest.mark.parametrize(
    ("flags", "environment"),
    [
        (["--door", "ifrt"], {}),
        ([], {"GANGWAY_DOOR": "ifrt"}),
        ([], {"GANGWAY_PJRT_PLUGIN": "/none.so"}),
    ],
)
def test_run_connects_with_a_door_beside_the_script(
    hosts: Hosts, flags: list[str], environment: dict[str, str]
) -> None:
    ran = gangway_run(hosts, *hosts.connect_flags(), *flags, **environment)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    runtime, _, children = ran.stdout.splitlines()[-1].partition(" ")
    assert runtime == "proxy" and "gangway" in children, ran.stdout


def test_run_finds_no_controller(hosts: Hosts) -> None:
    address = f"127.0.0.1:{free_port()}"
    ran = gangway_run(hosts, "--connect", address, "--tls", str(hosts.folder / "tls"))
    assert ran.returncode == 2, ran.stdout + ran.stderr
    assert f"gangway run: no controller listens on {address}" in ran.stderr


def test_run_on_the_controllers_host_needs_no_certificate_of_its_own(hosts: Hosts) -> None:
    """The state folder names the controller's."""
    state = {"GANGWAY_STATE_DIR": str(hosts.folder / "state")}
    ran = gangway_run(hosts, "--port", str(hosts.front_door), **state)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.splitlines()[-1] == "pjrt_ifrt []"
    assert (hosts.folder / "state" / str(hosts.front_door) / "devices").read_text().strip() == "3"
