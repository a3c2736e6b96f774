"""The only node of testing/kubernetes_server.py: takes all pods, runs them as processes (testing/pods.py), and reports
them to the API server as a kubelet does: volumes that wait for their objects, probes, ends, deletions with a grace
period, events, and logs for `kubectl logs`. Names of Services in the namespace `default` lead to their pods.

Each pod has a thread. Not done: resources, `kubectl exec`, `kubectl logs --follow`, and restarts of containers in a pod.
"""

from __future__ import annotations

import dataclasses
import datetime
import http.server
import os
import pathlib
import select
import signal
import ssl
import threading
import time
import traceback
import urllib.parse
from collections.abc import Callable
from typing import Any

from harness import PATIENCE
from kubernetes_server import Api, ApiError, KubernetesServer, Watch
from pods import MissingObject, Objects, PodNetwork, PodProcess

NODE = "node"
NAMESPACE = "default"  # whose Services have names
MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
VOLUME_RETRY_S = 1
NOT_FOUND, CONFLICT = 404, 409


def now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class ServerObjects(Objects):
    """ConfigMaps and Secrets of a namespace, as they are now."""

    def __init__(self, api: Api, namespace: str) -> None:
        super().__init__()
        self._api, self._namespace = api, namespace

    def get(self, kind: str, name: str) -> dict[str, bytes]:
        path = f"/api/v1/namespaces/{self._namespace}/{kind.lower()}s/{name}"
        try:
            found = self._api.call("GET", path)
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise
            raise MissingObject(f'{kind.lower()} "{name}" not found') from None
        self.add({"kind": kind, **found})
        return super().get(kind, name)


@dataclasses.dataclass
class Probe:
    """One of a container's, and when it is due."""

    kind: str
    period_s: float
    failures_max: int
    due: float = 0
    failures: int = 0


def probes_of(pod: dict[str, Any], *kinds: str) -> list[Probe]:
    (container,) = pod["spec"]["containers"]
    return [
        Probe(kind, container[kind]["periodSeconds"], container[kind]["failureThreshold"])
        for kind in kinds
        if kind in container
    ]


class PodRunner:
    """Runs one pod, from its volumes to its end."""

    def __init__(self, kubelet: Kubelet, pod: dict[str, Any], folder: pathlib.Path) -> None:
        self._kubelet, self._pod, self._folder = kubelet, pod, folder
        metadata = pod["metadata"]
        self.name, self.namespace, self.uid = (metadata[k] for k in ("name", "namespace", "uid"))
        self._path = f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"
        self.process: PodProcess | None = None
        self._started_at = ""
        self._ready = False
        self._told = threading.Event()  # to delete the pod, or to stop
        self._wake = os.eventfd(0)
        self._said: set[str] = set()
        self.thread = threading.Thread(target=self._guarded, name=self.name, daemon=True)
        self.thread.start()

    def delete(self) -> None:
        if not self._told.is_set():
            self._told.set()
            os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        """When nothing calls `delete` any more."""
        os.close(self._wake)

    def _guarded(self) -> None:
        try:
            self._run()
        except Exception:
            self._kubelet.errors.append(f"{self.name}: {traceback.format_exc()}")

    def _run(self) -> None:
        process = self.process = self._make()
        if process is None:
            self._report("Failed", {"waiting": {"reason": "ContainerCreating"}})
        else:
            self._started_at = now()
            self._report("Running", {"running": {"startedAt": self._started_at}})
            self._watch(process)
            if self._kubelet.stopping.is_set():
                process.kill(signal.SIGKILL)
            status = process.delete()
            self._report_end(status)
        if not self._kubelet.stopping.is_set():
            self._told.wait()  # a pod that has ended stays until it is deleted
        if not self._kubelet.stopping.is_set():
            options = {"gracePeriodSeconds": 0, "preconditions": {"uid": self.uid}}
            self._call("DELETE", self._path, options)

    def _make(self) -> PodProcess | None:
        """None: the pod was deleted before its volumes could be made."""
        objects = ServerObjects(self._kubelet.api, self.namespace)
        attempt = 0
        while not self._told.is_set():
            attempt += 1
            folder = self._folder / f"{attempt}"
            folder.mkdir(parents=True)
            try:
                return PodProcess(self._pod, objects, self._kubelet.network, folder)
            except MissingObject as error:
                if attempt == 1:
                    self._report("Pending", {"waiting": {"reason": "ContainerCreating"}})
                self._event("FailedMount", f"MountVolume.SetUp failed for a volume: {error}")
            select.select([self._wake], [], [], VOLUME_RETRY_S)
        return None

    def _watch(self, process: PodProcess) -> None:
        """Returns when the container has ended, or is to be ended."""
        startup = probes_of(self._pod, "startupProbe")
        later = probes_of(self._pod, "readinessProbe", "livenessProbe")
        if not startup:
            self._set_ready(not probes_of(self._pod, "readinessProbe"))
        ended = process.pidfd()
        try:
            while True:
                probes = startup or later
                next_s = min((probe.due for probe in probes), default=0) - time.monotonic()
                timeout_s = max(0, next_s) if probes else None
                if select.select([ended, self._wake], [], [], timeout_s)[0]:
                    return
                for probe in [each for each in probes if each.due <= time.monotonic()]:
                    if not self._probed(process, probe):
                        return
                    if probe.kind == "startupProbe" and probe.failures == 0:
                        startup = []
        finally:
            os.close(ended)

    def _probed(self, process: PodProcess, probe: Probe) -> bool:
        """False: the container must be ended."""
        good, text = process.probe(probe.kind)
        probe.due = time.monotonic() + probe.period_s
        probe.failures = 0 if good else probe.failures + 1
        kind = probe.kind.removesuffix("Probe").capitalize()
        if not good and process.status() is None:
            self._event("Unhealthy", f"{kind} probe failed: {text.strip()}")
        if probe.kind == "readinessProbe":
            if good or probe.failures >= probe.failures_max:
                self._set_ready(good)
            return True
        if probe.failures >= probe.failures_max:
            self._event("Killing", f"Container failed {kind.lower()} probe, will be killed")
            return False
        return True

    def _set_ready(self, ready: bool) -> None:
        if ready != self._ready:
            self._ready = ready
            self._report("Running", {"running": {"startedAt": self._started_at}})

    def _report_end(self, status: int) -> None:
        self._ready = False
        terminated = {
            "exitCode": status,
            "reason": "Error" if status else "Completed",
            "startedAt": self._started_at,
            "finishedAt": now(),
        }
        self._report("Failed" if status else "Succeeded", {"terminated": terminated})

    def _report(self, phase: str, state: dict[str, Any]) -> None:
        (container,) = self._pod["spec"]["containers"]
        ready = "True" if self._ready else "False"
        status: dict[str, Any] = {
            "phase": phase,
            "hostIP": "127.0.0.1",
            "startTime": self._pod["metadata"]["creationTimestamp"],
            "conditions": [
                {"type": "Initialized", "status": "True"},
                {"type": "ContainersReady", "status": ready},
                {"type": "Ready", "status": ready},
            ],
            "containerStatuses": [
                {
                    "name": container["name"],
                    "image": container["image"],
                    "imageID": "",
                    "ready": self._ready,
                    "started": "running" in state,
                    "restartCount": 0,
                    "state": state,
                }
            ],
        }
        if self.process:
            address = self.process.address
            status |= {"podIP": address, "podIPs": [{"ip": address}]}
        self._call("PATCH", f"{self._path}/status", {"status": status}, STRATEGIC)

    def _event(self, reason: str, message: str) -> None:
        """Once for each message."""
        if message in self._said:
            return
        self._said.add(message)
        about = {"kind": "Pod", "apiVersion": "v1", "uid": self.uid}
        event = {
            "metadata": {"generateName": f"{self.name}."},
            "involvedObject": {**about, "name": self.name, "namespace": self.namespace},
            "reason": reason,
            "message": message[:1000],
            "type": "Warning",
            "source": {"component": "kubelet", "host": NODE},
            "firstTimestamp": now(),
            "lastTimestamp": now(),
            "count": 1,
        }
        self._call("POST", f"/api/v1/namespaces/{self.namespace}/events", event)

    def _call(self, method: str, path: str, body: Any, content: str = "application/json") -> None:
        try:
            self._kubelet.api.call(method, path, body, content)
        except ApiError as error:
            if error.status not in (NOT_FOUND, CONFLICT):  # the pod, or its namespace, is gone
                raise


class Kubelet:
    """The node. `errors` must be empty at the end."""

    def __init__(self, server: KubernetesServer, folder: pathlib.Path) -> None:
        self.api = server.api
        self.errors: list[str] = []
        self.stopping = threading.Event()
        self.network = PodNetwork(folder)
        self._folder = folder
        self._lock = threading.Lock()
        self._runners: dict[str, PodRunner] = {}  # by uid
        self._logs = self._serve_logs(server)
        self._register(self._logs.server_address[1])
        self._watches = [
            self._watch("/api/v1/pods", self._on_pod),
            self._watch("/apis/discovery.k8s.io/v1/endpointslices", self._on_endpoints),
        ]

    def _register(self, port: int) -> None:
        self.api.call("POST", "/api/v1/nodes", {"metadata": {"name": NODE}})
        status = {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            "capacity": {"cpu": "64", "memory": "256Gi", "pods": "110"},
        }
        self.api.call("PATCH", f"/api/v1/nodes/{NODE}/status", {"status": status}, MERGE)

    def _watch(self, path: str, handle: Callable[[dict[str, Any]], None]) -> Watch:
        def guarded(event: dict[str, Any]) -> None:
            try:
                handle(event)
            except Exception:
                self.errors.append(f"{path}: {traceback.format_exc()}")

        return Watch(self.api, path, guarded)

    def runner(self, name: str) -> PodRunner:
        """Of the newest pod with this name."""
        with self._lock:
            found = [each for each in self._runners.values() if each.name == name]
        assert found, f"no pod {name}"
        return found[-1]

    def process(self, name: str) -> PodProcess:
        process = self.runner(name).process
        assert process, f"{name} has not started"
        return process

    def _on_pod(self, event: dict[str, Any]) -> None:
        if event["type"] == "LISTED":
            with self._lock:
                gone = set(self._runners) - {pod["metadata"]["uid"] for pod in event["items"]}
            for uid in gone:
                self._forget(uid)
            for pod in event["items"]:
                self._see(pod)
        elif event["type"] == "DELETED":
            self._forget(event["object"]["metadata"]["uid"])
        elif event["type"] in ("ADDED", "MODIFIED"):
            self._see(event["object"])

    def _see(self, pod: dict[str, Any]) -> None:
        metadata, uid = pod["metadata"], pod["metadata"]["uid"]
        if not pod["spec"].get("nodeName"):
            self._bind(metadata)
            return
        with self._lock:
            runner = self._runners.get(uid)
            ended = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
            if runner is None and not ended and not self.stopping.is_set():
                folder = self._folder / f"{metadata['name']}-{uid}"
                runner = self._runners[uid] = PodRunner(self, pod, folder)
        if runner and metadata.get("deletionTimestamp"):
            runner.delete()

    def _bind(self, metadata: dict[str, Any]) -> None:
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/binding"
        target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
        body = {"metadata": {"name": metadata["name"]}, "target": target}
        try:
            self.api.call("POST", path, body)
        except ApiError as error:
            if error.status not in (NOT_FOUND, CONFLICT):  # deleted, or bound before
                raise

    def _forget(self, uid: str) -> None:
        with self._lock:
            runner = self._runners.pop(uid, None)
        if runner:
            runner.delete()

    def _on_endpoints(self, event: dict[str, Any]) -> None:
        for slice_ in event["items"] if event["type"] == "LISTED" else [event["object"]]:
            metadata = slice_["metadata"]
            service = metadata.get("labels", {}).get("kubernetes.io/service-name")
            if metadata["namespace"] != NAMESPACE or not service:
                continue
            usable = [
                address
                for endpoint in slice_.get("endpoints") or []
                if endpoint.get("conditions", {}).get("ready")
                for address in endpoint["addresses"]
            ]
            gone = event["type"] == "DELETED" or not usable
            self.network.name(service, None if gone else usable[0])

    def _serve_logs(self, server: KubernetesServer) -> http.server.ThreadingHTTPServer:
        """For `kubectl logs`, which the API server asks the node for."""
        kubelet = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                _, _, namespace, name, _ = urllib.parse.urlsplit(self.path).path.split("/")
                try:
                    text = kubelet.log(namespace, name)
                except LookupError as error:
                    self.send_error(NOT_FOUND, str(error))
                    return
                self.send_response(200)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        served = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(server.certificate, server.key)
        served.socket = context.wrap_socket(served.socket, server_side=True)
        threading.Thread(target=served.serve_forever, name="logs", daemon=True).start()
        return served

    def log(self, namespace: str, name: str) -> bytes:
        with self._lock:
            runners = [each for each in self._runners.values() if each.name == name]
        for runner in reversed(runners):
            if runner.namespace == namespace and runner.process:
                return runner.process.log.read_bytes()
        raise LookupError(f"{namespace}/{name} has not started")

    def stop(self) -> None:
        """All pods end at once, and the API server is not told."""
        self.stopping.set()
        for watch in self._watches:
            watch.stop()
        with self._lock:
            runners = list(self._runners.values())
        for runner in runners:
            runner.delete()
        for runner in runners:
            runner.thread.join(60 * PATIENCE)
            runner.close()
        self._logs.shutdown()
        self._logs.server_close()
        self.network.close()
        late = [runner.name for runner in runners if runner.thread.is_alive()]
        assert not late, f"pods that did not end: {late}"
        assert not self.errors, "\n".join(self.errors)
