"""Hosts that are namespaces of this machine: each has its own network (an address of 10.77.0.0/24 at a switch), host
name and mount table, in which /etc/hosts knows them all. Made by root only.

Nothing has a name outside: the switch and each host exist as long as the process that holds them, and that ends when
this process does, however it ends. So nothing is left behind, and several runs at once do not meet.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pathlib
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from types import TracebackType

import pytest
from harness import PATIENCE, ends_with_this_process, wait_for

PREFIX = "10.77.0"
# Waits until the process that made it has ended: its standard input is then at its end.
HOLD = "echo ready; exec cat > /dev/null"
SWITCH = f"set -e; ip link set lo up; ip link add switch type bridge; ip link set switch up; {HOLD}"
HOST = f'set -e; hostname "$1"; ip link set lo up; mount --bind "$2" /etc/hosts; {HOLD}'


@functools.cache
def why_not() -> str:
    """Why this machine makes no such hosts; empty: it does."""
    if os.geteuid() != 0:
        return "only root makes namespaces"
    command = ["unshare", "--net", "--uts", "--mount", "sh", "-c", SWITCH]
    try:
        made = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    except FileNotFoundError as error:
        return f"cannot make namespaces: {error}"
    return "" if made.returncode == 0 else f"cannot make namespaces: {made.stderr.strip()}"


needs_namespaces = pytest.mark.skipif(bool(why_not()), reason=why_not())


class Namespace:
    """Namespaces that a process of their own holds."""

    def __init__(self, kinds: Sequence[str], script: str, *arguments: str) -> None:
        self._holder = subprocess.Popen(
            ["unshare", *kinds, "sh", "-c", script, "sh", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._holder.stdout
        line = self._holder.stdout.readline()
        assert line == "ready\n", f"the namespaces were not made ({self._holder.wait()})"
        self.pid = self._holder.pid
        self._enter = [
            f"--{kind.lstrip('-').partition('=')[0]}" for kind in kinds if "=" not in kind
        ]

    def entering(self, *command: str) -> list[str]:
        """A command line that becomes `command` in there: same process, same environment."""
        return ["nsenter", f"--target={self.pid}", *self._enter, f"--wdns={os.getcwd()}", *command]

    def check(self, *command: str) -> str:
        """The output of a command that must succeed there."""
        done = subprocess.run(self.entering(*command), capture_output=True, text=True)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def close(self) -> None:
        self._holder.communicate()  # closes its standard input


class Host(Namespace):
    """A host of a Network."""

    def __init__(self, name: str, address: str, hosts_file: pathlib.Path) -> None:
        super().__init__(
            ["--net", "--uts", "--mount", "--propagation=private"], HOST, name, str(hosts_file)
        )
        self.name, self.address = name, address
        self.port = f"to-{address.rpartition('.')[2]}"  # of the switch

    def popen(
        self, command: Sequence[str], log: pathlib.Path, environment: Mapping[str, str]
    ) -> subprocess.Popen[bytes]:
        with log.open("ab") as output:
            return subprocess.Popen(
                self.entering(*command),
                env=dict(environment),
                stdout=output,
                stderr=output,
            )

    def run(
        self, *command: str, environment: Mapping[str, str], timeout_s: float = 60
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.entering(*command),
            env=dict(environment),
            capture_output=True,
            text=True,
            timeout=timeout_s * PATIENCE,
        )


class Network:
    """Hosts at one switch. Ends the namespaces when it is closed, which fails if a process of theirs is left then."""

    def __init__(self, *names: str) -> None:
        ends_with_this_process()
        self.switch = Namespace(["--net"], SWITCH)
        self.hosts: dict[str, Host] = {}
        with tempfile.NamedTemporaryFile("w", prefix="gangway-hosts-", delete=False) as file:
            self._hosts_file = pathlib.Path(file.name)
            addresses = {name: f"{PREFIX}.{number}" for number, name in enumerate(names, start=1)}
            file.write("127.0.0.1 localhost\n::1 localhost\n")
            file.writelines(f"{address} {name}\n" for name, address in addresses.items())
        for name, address in addresses.items():
            self._add(Host(name, address, self._hosts_file))
        self._hosts_file.unlink()  # the mounts keep it

    def _add(self, host: Host) -> None:
        self.hosts[host.name] = host
        link = ["ip", "link", "add", host.port, "type", "veth"]
        self.switch.check(*link, "peer", "name", "eth0", "netns", str(host.pid))
        self.switch.check("ip", "link", "set", host.port, "master", "switch", "up")
        host.check("ip", "address", "add", f"{host.address}/24", "dev", "eth0")
        host.check("ip", "link", "set", "eth0", "up")
        host.check("ip", "route", "add", "default", "dev", "eth0")

    def __getitem__(self, name: str) -> Host:
        return self.hosts[name]

    def __enter__(self) -> Network:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def cut(self, name: str) -> None:
        """The host's cable is pulled: what is sent is lost, and no end is told."""
        self.switch.check("ip", "link", "set", self[name].port, "nomaster")

    def mend(self, name: str) -> None:
        self.switch.check("ip", "link", "set", self[name].port, "master", "switch")

    def shape(self, name: str, rate: str) -> None:
        """Limits what the host sends and receives, to such as "100mbit"."""
        limit = ["root", "tbf", "rate", rate, "burst", "256kb", "latency", "50ms"]
        self.switch.check("tc", "qdisc", "replace", "dev", self[name].port, *limit)
        self[name].check("tc", "qdisc", "replace", "dev", "eth0", *limit)

    def unshape(self, name: str) -> None:
        self.switch.check("tc", "qdisc", "del", "dev", self[name].port, "root")
        self[name].check("tc", "qdisc", "del", "dev", "eth0", "root")

    def processes(self) -> dict[int, str]:
        """What runs on the hosts, but for their holders."""
        own = {os.readlink(f"/proc/{host.pid}/ns/net"): host for host in self.hosts.values()}
        found = {}
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                host = own.get(os.readlink(folder / "ns" / "net"))
                if host is None or int(folder.name) == host.pid:
                    continue
                words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                found[int(folder.name)] = f"{host.name}: {words}"
            except OSError:  # it has ended
                continue
        return found

    def close(self) -> None:
        # A front door that has lost its controller takes a second to end after its script.
        with contextlib.suppress(AssertionError):
            wait_for("all processes of the hosts have ended", lambda: not self.processes(), 5)
        left = self.processes()
        for host in self.hosts.values():
            host.close()
        self.switch.close()
        assert not left, f"left on the hosts: {left}"
