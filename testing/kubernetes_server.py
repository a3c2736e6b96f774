"""A real Kubernetes without nodes, on ports of loopback: etcd, kube-apiserver, kube-controller-manager and, when it is
installed, JobSet's controller with its webhooks, as tools/kubernetes.sh builds them. testing/kubelet.py is its node.

JobSet is installed by its own manifests, and its controller runs as the ServiceAccount that these give rights to. Two
things differ, because the controller is a process and no pod: its webhooks have an address instead of a Service, and
their certificate is made here instead of by the controller.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import pathlib
import secrets
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Mapping
from typing import Any

import yaml
from harness import PATIENCE, ROOT, ends_with_this_process, free_port, wait_for

BUILD_LIMIT_S = 7200
RECONNECT_S = 0.2
WATCH_LIMIT_S = 3600  # the API server ends it earlier
CONTROLLERS = (
    *("job-controller", "endpointslice-controller", "garbage-collector-controller"),
    *("namespace-controller", "serviceaccount-controller"),
)
JOBSET_NAMESPACE, JOBSET_ACCOUNT = "jobset-system", "jobset-controller-manager"


class ApiError(Exception):
    """A request that the API server has refused."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class Api:
    """Requests to the API server over HTTPS. Threads may share it."""

    def __init__(self, port: int, token: str, certificate: pathlib.Path) -> None:
        self._port = port
        self._headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
        self._context = ssl.create_default_context(cafile=str(certificate))

    def request(
        self,
        method: str,
        path: str,
        timeout_s: float,
        body: str | None = None,
        content: str = "application/json",
    ) -> http.client.HTTPSConnection:
        """A connection on which the request has been sent."""
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self._port, timeout=timeout_s, context=self._context
        )
        try:
            connection.request(method, path, body, {**self._headers, "Content-Type": content})
        except BaseException:
            connection.close()
            raise
        return connection

    def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        content: str = "application/json",
    ) -> dict[str, Any]:
        data = None if body is None else json.dumps(body)
        with contextlib.closing(
            self.request(method, path, 30 * PATIENCE, data, content)
        ) as connection:
            response = connection.getresponse()
            text = response.read()
        if response.status >= 300:
            raise ApiError(response.status, text.decode(errors="replace"))
        parsed: dict[str, Any] = json.loads(text)
        return parsed

    def ready(self) -> bool:
        with contextlib.suppress(OSError, http.client.HTTPException):
            with contextlib.closing(self.request("GET", "/readyz", 10)) as connection:
                return connection.getresponse().status == 200
        return False


class Watch:
    """Calls `handle(event)`, on a thread of its own, for each object that exists at `path`, and for each change."""

    def __init__(self, api: Api, path: str, handle: Callable[[dict[str, Any]], None]) -> None:
        self._api, self._path, self._handle = api, path, handle
        self._stopping = threading.Event()
        self._socket: socket.socket | None = None
        self._thread = threading.Thread(target=self._run, name=f"watch {path}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            with contextlib.suppress(OSError, http.client.HTTPException, ValueError, ApiError):
                self._follow()
            self._stopping.wait(RECONNECT_S)

    def _follow(self) -> None:
        """Until the connection ends. What was deleted between two connections is absent from the second one's list."""
        listed = self._api.call("GET", self._path)
        self._handle({"type": "LISTED", "items": listed["items"]})
        version = listed["metadata"]["resourceVersion"]
        path = f"{self._path}?watch=true&resourceVersion={version}"
        with contextlib.closing(self._api.request("GET", path, WATCH_LIMIT_S)) as connection:
            self._socket = connection.sock
            response = connection.getresponse()
            while not self._stopping.is_set() and (line := response.readline()):
                event = json.loads(line)
                if event["type"] == "ERROR":
                    return
                self._handle(event)

    def stop(self) -> None:
        self._stopping.set()
        if self._socket:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(20 * PATIENCE)
        assert not self._thread.is_alive()


def built() -> pathlib.Path:
    """The folder of the programs."""
    made = subprocess.run(
        [str(ROOT / "tools" / "kubernetes.sh")],
        stdout=subprocess.PIPE,
        text=True,
        timeout=BUILD_LIMIT_S,
    )
    assert made.returncode == 0
    return pathlib.Path(made.stdout.strip())


class KubernetesServer:
    """A Kubernetes, whose files are in `folder`. Its kubectl is the administrator's."""

    def __init__(self, folder: pathlib.Path) -> None:
        ends_with_this_process()
        self.folder = folder
        self.programs = built()
        self._processes: list[tuple[str, subprocess.Popen[bytes]]] = []
        self.certificate, self.key = folder / "tls.crt", folder / "tls.key"
        self._make_certificate()
        self._port = free_port()
        self._webhook_port = free_port()
        token = secrets.token_hex(16)
        (folder / "tokens.csv").write_text(f"{token},admin,admin,system:masters\n")
        self._config = folder / "kubeconfig"
        self._write_config(self._config, token)
        # What kubectl reads.
        self.environment = {"KUBECONFIG": str(self._config), "HOME": str(folder)}
        self.api = Api(self._port, token, self.certificate)

    def _make_certificate(self) -> None:
        """One for all servers: each has the address of loopback."""
        subprocess.run(
            [
                *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
                *("-keyout", str(self.key), "-out", str(self.certificate), "-subj", "/CN=test"),
                *("-addext", "subjectAltName=IP:127.0.0.1"),
            ],
            check=True,
            capture_output=True,
            timeout=60 * PATIENCE,
        )

    def _write_config(self, path: pathlib.Path, token: str) -> None:
        cluster = {
            "server": f"https://127.0.0.1:{self._port}",
            "certificate-authority": str(self.certificate),
        }
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "current-context": "test",
        }
        path.write_text(json.dumps(config))

    def start(self) -> KubernetesServer:
        store, peers = free_port(), free_port()
        self._start("etcd", *self._etcd_flags(store, peers))
        self._start("kube-apiserver", *self._api_server_flags(store))
        self._wait("kube-apiserver", self.api.ready)
        self._start("kube-controller-manager", *self._controller_manager_flags())
        self._wait("the namespace's account", lambda: self._has_account("default", "default"))
        return self

    def _etcd_flags(self, store: int, peers: int) -> list[str]:
        address, peer = f"http://127.0.0.1:{store}", f"http://127.0.0.1:{peers}"
        return [
            f"--data-dir={self.folder / 'etcd'}",
            "--unsafe-no-fsync",
            f"--listen-client-urls={address}",
            f"--advertise-client-urls={address}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
        ]

    def _api_server_flags(self, store: int) -> list[str]:
        return [
            f"--etcd-servers=http://127.0.0.1:{store}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self._port}",
            f"--tls-cert-file={self.certificate}",
            f"--tls-private-key-file={self.key}",
            f"--token-auth-file={self.folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--endpoint-reconciler-type=none",  # no pod is to reach the API server
            "--service-cluster-ip-range=10.78.0.0/24",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self.key}",
            f"--service-account-signing-key-file={self.key}",
            "--kubelet-preferred-address-types=InternalIP",
        ]

    def _controller_manager_flags(self) -> list[str]:
        return [
            f"--kubeconfig={self._config}",
            f"--controllers={','.join(CONTROLLERS)}",
            "--leader-elect=false",
            "--secure-port=0",
        ]

    def _start(self, name: str, *flags: str) -> None:
        command = [str(self.programs / name), *flags]
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._processes.append((name, process))

    def _wait(self, what: str, condition: Callable[[], bool], limit_s: float = 120) -> None:
        """Fails at once, and shows the log, if a process has ended."""

        def holds() -> bool:
            for name, process in self._processes:
                text = (self.folder / f"{name}.log").read_text(errors="replace")[-3000:]
                assert process.poll() is None, f"{name} has ended: {text}"
            return bool(condition())

        wait_for(what, holds, limit_s)

    def _has_account(self, namespace: str, name: str) -> bool:
        with contextlib.suppress(ApiError):
            self.api.call("GET", f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}")
            return True
        return False

    def install_jobset(self) -> None:
        documents = list(yaml.safe_load_all((self.programs / "jobset.yaml").read_text()))
        for document in documents:
            if document["kind"].endswith("WebhookConfiguration"):
                for webhook in document["webhooks"]:
                    webhook["clientConfig"] = self._webhook(webhook["clientConfig"])
        self.do("apply", "--server-side", "-f", "-", text=yaml.safe_dump_all(documents))
        account = ["--namespace", JOBSET_NAMESPACE, JOBSET_ACCOUNT]
        config = self.folder / "jobset.kubeconfig"
        self._write_config(config, self.do("create", "token", *account).strip())
        health = free_port()
        settings = {
            "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
            "kind": "Configuration",
            "webhook": {
                "host": "127.0.0.1",
                "port": self._webhook_port,
                "certDir": str(self.folder),
            },
            "metrics": {"bindAddress": "0"},
            "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
            "leaderElection": {"leaderElect": False},
            "internalCertManagement": {"enable": False},
        }
        (self.folder / "jobset.yaml").write_text(yaml.safe_dump(settings))
        flags = [f"--config={self.folder / 'jobset.yaml'}", f"--kubeconfig={config}"]
        self._start("jobset", *flags)

        def ready() -> bool:
            connection = http.client.HTTPConnection("127.0.0.1", health, timeout=10)
            with contextlib.closing(connection), contextlib.suppress(OSError):
                connection.request("GET", "/readyz")
                return connection.getresponse().status == 200
            return False

        self._wait("JobSet's controller", ready)
        self.do("wait", "--for=condition=Established", "crd/jobsets.jobset.x-k8s.io")

    def _webhook(self, config: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "url": f"https://127.0.0.1:{self._webhook_port}{config['service']['path']}",
            "caBundle": base64.b64encode(self.certificate.read_bytes()).decode(),
        }

    def run(
        self, *arguments: str | pathlib.Path, text: str = "", timeout_s: float = 60
    ) -> subprocess.CompletedProcess[str]:
        """kubectl, with `text` as its standard input."""
        return subprocess.run(
            [str(self.programs / "kubectl"), *map(str, arguments)],
            input=text,
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            timeout=timeout_s * PATIENCE,
        )

    def do(self, *arguments: str | pathlib.Path, text: str = "", timeout_s: float = 60) -> str:
        """The output of a kubectl that must succeed."""
        ran = self.run(*arguments, text=text, timeout_s=timeout_s)
        assert ran.returncode == 0, f"kubectl {arguments}: {ran.stdout}{ran.stderr}"
        return ran.stdout

    def pids(self) -> list[int]:
        return [process.pid for _, process in self._processes]

    def stop(self) -> None:
        """The controllers first, the store last."""
        late = []
        for name, process in reversed(self._processes):
            process.terminate()
            try:
                process.wait(30 * PATIENCE)
            except subprocess.TimeoutExpired:
                late.append(name)
                process.kill()
                process.wait(10 * PATIENCE)
        assert not late, f"had to be killed: {late}"
