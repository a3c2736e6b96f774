"""Runs Kubernetes' pods as processes of this machine, by root: what a kubelet and a container runtime do of what
Gangway's manifests ask for. A pod has its own network (an address at a switch), host name, process ids and root folder.
Its volumes have the owners and modes that a kubelet gives them, its processes the user of its security context, and
`$(NAME)` in a command is replaced. The image is this repository, as it is built, or the root folder of a real one.

Not done: resource limits, seccomp profiles, and more containers than one.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import ipaddress
import itertools
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from typing import Any

from harness import ROOT, ends_with_this_process
from namespaces import SWITCH, Namespace

SANDBOX = "set -e; ip link set lo up; echo ready; exec cat > /dev/null"
NAME_SERVER = "10.77.0.254"
# As a kubelet writes it.
RESOLVER = f"""nameserver {NAME_SERVER}
search default.svc.cluster.local svc.cluster.local cluster.local
options ndots:5
"""
NETWORK = ipaddress.ip_network("10.77.0.0/24")
MARK = "job-completion-index"
# What a Debian image has, and the tests' machine is.
SYSTEM = (
    *("/usr", "/etc/alternatives", "/etc/ld.so.cache", "/etc/ssl", "/etc/passwd", "/etc/group"),
    sys.base_prefix,  # the Python of the tests' environment
)


@dataclasses.dataclass
class Image:
    """What a container sees of its image: paths here, their place there, and whether they are read-only."""

    binds: list[tuple[str, str, bool]]
    environment: dict[str, str]


def this_repository() -> Image:
    system = [(path, path, True) for path in dict.fromkeys(SYSTEM) if os.path.exists(path)]
    path = f"{ROOT / 'bin'}:/usr/bin:/bin"
    return Image([*system, (str(ROOT), str(ROOT), True)], {"PATH": path, "HOME": "/tmp"})


def image_at(root: pathlib.Path, environment: Mapping[str, str]) -> Image:
    """One of Debian whose files are in `root`. Mount points may be made in its /etc."""
    binds = [(str(root / name), f"/{name}", name != "etc") for name in ("usr", "opt", "etc")]
    return Image(binds, {"HOME": "/home/gangway", **environment})


class MissingObject(Exception):
    """A volume's ConfigMap or Secret does not exist. A kubelet tries again until it does."""


@dataclasses.dataclass
class Objects:
    """ConfigMaps and Secrets, by kind and name."""

    data: dict[tuple[str, str], dict[str, bytes]] = dataclasses.field(default_factory=dict)

    def add(self, document: Mapping[str, Any]) -> None:
        kind, name = document["kind"], document["metadata"]["name"]
        values = document.get("data", {}).items()
        if kind == "Secret":
            self.data[kind, name] = {key: base64.b64decode(value) for key, value in values}
        elif kind == "ConfigMap":
            self.data[kind, name] = {key: value.encode() for key, value in values}

    def get(self, kind: str, name: str) -> dict[str, bytes]:
        if (kind, name) not in self.data:
            raise MissingObject(f'{kind.lower()} "{name}" not found')
        return self.data[kind, name]


class PodNetwork:
    """The switch, the pods' addresses, and the server of the Services' names."""

    def __init__(self, folder: pathlib.Path) -> None:
        ends_with_this_process()
        self._switch = Namespace(["--net"], SWITCH)
        self._numbers = itertools.count(1)
        self._services: dict[str, str] = {}
        self._names_file = folder / "names"
        self._names_file.touch()
        self.hosts_file, self.resolver_file = folder / "hosts", folder / "resolv.conf"
        self.hosts_file.write_text("127.0.0.1 localhost\n")
        self.resolver_file.write_text(RESOLVER)
        address = f"{NAME_SERVER}/{NETWORK.prefixlen}"
        self._switch.check("ip", "address", "add", address, "dev", "switch")
        server = str(ROOT / "testing" / "name_server.py")
        self._server = subprocess.Popen(
            self._switch.entering(sys.executable, "-I", server, NAME_SERVER, str(self._names_file)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._server.stdout and self._server.stdout.readline() == b"ready\n"

    def name(self, service: str, address: str | None) -> None:
        """The pod with this address is the only endpoint of the Service; None: it has none."""
        if address is None:
            self._services.pop(service, None)
        else:
            self._services[service] = address
        fresh = self._names_file.with_suffix(".new")
        fresh.write_text("".join(f"{at} {name}\n" for name, at in self._services.items()))
        fresh.rename(self._names_file)

    def attach(self) -> tuple[Namespace, str]:
        """A namespace with an address of its own."""
        sandbox = Namespace(["--net", "--uts", "--ipc"], SANDBOX)
        number = next(self._numbers)
        address, port = str(NETWORK[number]), f"to-{number}"
        link = ["ip", "link", "add", port, "type", "veth"]
        self._switch.check(*link, "peer", "name", "eth0", "netns", str(sandbox.pid))
        self._switch.check("ip", "link", "set", port, "master", "switch", "up")
        sandbox.check("ip", "address", "add", f"{address}/{NETWORK.prefixlen}", "dev", "eth0")
        sandbox.check("ip", "link", "set", "eth0", "up")
        return sandbox, address

    def close(self) -> None:
        self._server.communicate()  # closes its standard input
        self._switch.close()


def expanded(text: str, environment: Mapping[str, str]) -> str:
    return re.sub(r"\$\((\w+)\)", lambda found: environment.get(found[1], found[0]), text)


def pid_of(first: subprocess.Popen[bytes]) -> int | None:
    """The container's first process, which is the child of `unshare`. None: not yet there, or ended."""
    with contextlib.suppress(OSError):
        children = pathlib.Path(f"/proc/{first.pid}/task/{first.pid}/children").read_text().split()
        if children:
            return int(children[0])
    return None


class PodProcess:
    """A pod's container. `pod` is the object, with what controllers have put into it."""

    def __init__(
        self,
        pod: Mapping[str, Any],
        objects: Objects,
        network: PodNetwork,
        folder: pathlib.Path,
        image: Image | None = None,
    ) -> None:
        self._image = image or this_repository()
        self.name = pod["metadata"]["name"]
        self.spec = pod["spec"]
        self.grace_s = float(self.spec.get("terminationGracePeriodSeconds", 30))
        (self._container,) = self.spec["containers"]
        self._user = self.spec["securityContext"]["runAsUser"]
        self._group = self.spec["securityContext"]["fsGroup"]
        assert self.spec["securityContext"]["runAsGroup"] == self._group
        self._folder = folder / self.name
        self._folder.mkdir()
        mounts = self._volumes(objects)
        self._sandbox, self.address = network.attach()
        self.log = self._folder / "log"
        self._process = self._start(mounts, pod, network)

    def _volumes(self, objects: Objects) -> list[tuple[str, str, bool]]:
        """Makes the volumes. Where each is bound, and whether read-only."""
        made = {}
        for volume in self.spec["volumes"]:
            path = made[volume["name"]] = self._folder / "volumes" / volume["name"]
            path.mkdir(parents=True)
            if "emptyDir" in volume:
                os.chown(path, 0, self._group)
                path.chmod(0o2777)
                continue
            if "secret" in volume:
                source = volume["secret"]
                files = objects.get("Secret", source["secretName"])
            else:
                source = volume["configMap"]
                files = objects.get("ConfigMap", source["name"])
            self._project(path, files, source.get("defaultMode", 0o644))
        return [
            (str(made[mount["name"]]), mount["mountPath"], mount.get("readOnly", False))
            for mount in self._container["volumeMounts"]
        ]

    def _project(self, path: pathlib.Path, files: Mapping[str, bytes], mode: int) -> None:
        """As a kubelet does: the files are links, so that all change at once; they are root's, and its group's."""
        versioned = path / "..2026_11_29"
        versioned.mkdir()
        for name, data in files.items():
            (versioned / name).write_bytes(data)
            os.chown(versioned / name, 0, self._group)
            (versioned / name).chmod(mode | 0o040)
            (path / name).symlink_to(f"..data/{name}")
        (path / "..data").symlink_to(versioned.name)

    def _environment(self, pod: Mapping[str, Any]) -> dict[str, str]:
        made = {"PYTHONUNBUFFERED": "1", **self._image.environment}
        metadata = pod["metadata"]
        for each in self._container.get("env", []):
            if "valueFrom" not in each:
                made[each["name"]] = expanded(each.get("value", ""), made)
                continue
            path = each["valueFrom"]["fieldRef"]["fieldPath"]
            found = re.fullmatch(r"metadata\.(annotations|labels)\['(.*)'\]", path)
            made[each["name"]] = metadata[found[1]][found[2]] if found else self.address
        return made

    def _start(
        self, mounts: list[tuple[str, str, bool]], pod: Mapping[str, Any], network: PodNetwork
    ) -> subprocess.Popen[bytes]:
        environment = self._environment(pod)
        root = self._folder / "root"
        root.mkdir()
        spec = {
            "root": str(root),
            "binds": [
                *self._image.binds,
                ("/sys", "/sys", False),
                (str(network.hosts_file), "/etc/hosts", True),
                (str(network.resolver_file), "/etc/resolv.conf", True),
                *mounts,
            ],
            "user": self._user,
            "group": self._group,
            "hostname": self.name,
            "command": [expanded(word, environment) for word in self._container["command"]],
            "environment": environment,
        }
        (self._folder / "spec.json").write_text(json.dumps(spec))
        init = [sys.executable, "-I", str(ROOT / "testing" / "container_init.py")]
        unshare = ["unshare", "--mount", "--propagation=private", "--pid", "--fork"]
        with self.log.open("ab") as log:
            return subprocess.Popen(
                self._sandbox.entering(
                    *unshare, "--kill-child=SIGKILL", *init, str(self._folder / "spec.json")
                ),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def exec(self, command: Iterable[str], timeout_s: float) -> tuple[int, str]:
        """The exit status and the output of a command in the container, as that of a probe."""
        pid = pid_of(self._process)
        if pid is None:
            return -1, "the container has ended"
        enter = ["nsenter", f"--target={pid}", "--all", "--root", "--wd"]
        user = [f"--setuid={self._user}", f"--setgid={self._group}"]
        environment = json.loads((self._folder / "spec.json").read_text())["environment"]
        try:
            ran = subprocess.run(
                [*enter, *user, *command],
                env=environment,
                capture_output=True,
                text=True,
                timeout=timeout_s,
            )
        except subprocess.TimeoutExpired:
            return -1, f"no result within {timeout_s:g} s"
        return ran.returncode, ran.stdout + ran.stderr

    def probe(self, kind: str) -> tuple[bool, str]:
        """Whether the probe succeeds (readinessProbe, ...), and what it prints."""
        probe = self._container[kind]
        status, text = self.exec(probe["exec"]["command"], probe["timeoutSeconds"])
        return status == 0, text

    def pidfd(self) -> int:
        """A descriptor that becomes readable when the container has ended; the caller's to close."""
        return os.pidfd_open(self._process.pid)

    def status(self) -> int | None:
        """The exit status, as Kubernetes reports it; None while the container runs."""
        status = self._process.poll()
        return None if status is None else status if status >= 0 else 128 - status

    def kill(self, with_signal: signal.Signals) -> None:
        pid = pid_of(self._process)
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, with_signal)

    def wait(self, timeout_s: float) -> int:
        self._process.wait(timeout_s)
        status = self.status()
        assert status is not None
        return status

    def delete(self) -> int:
        """SIGTERM, and SIGKILL after the pod's grace period. The exit status."""
        self.kill(signal.SIGTERM)
        deadline = time.monotonic() + self.grace_s
        while self.status() is None and time.monotonic() < deadline:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0.2)
        self._process.kill()  # with it, the container ends
        status = self.wait(10)
        self._sandbox.close()
        return status


def pods_of(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The pods that the controllers of JobSet and Job make of a JobSet, in its order."""
    made = []
    jobset = document["metadata"]["name"]
    for job in document["spec"]["replicatedJobs"]:
        spec = job["template"]["spec"]
        for index in range(spec["completions"]):
            pod = json.loads(json.dumps(spec["template"]))
            pod["metadata"]["name"] = f"{jobset}-{job['name']}-0-{index}"
            pod["metadata"]["annotations"] = {f"batch.kubernetes.io/{MARK}": str(index)}
            for container in pod["spec"]["containers"]:
                container["env"].append({"name": "JOB_COMPLETION_INDEX", "value": str(index)})
            made.append(pod)
    return made
