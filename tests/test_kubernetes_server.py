"""What `gangway kubernetes` prints, applied to a real Kubernetes with JobSet (testing/kubernetes_server.py), whose only
node runs the pods as processes (testing/kubelet.py): the controllers of Kubernetes and JobSet make the pods, replace
them, and end the cluster. The commands are those of docs/guides/kubernetes.md. The first run on a machine compiles for
half an hour (tools/kubernetes.sh).
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from harness import PATIENCE, ROOT, wait_for
from kubelet import Kubelet
from kubernetes_server import KubernetesServer
from leftovers import MARKER
from namespaces import needs_namespaces
from test_kubernetes_pods import CLUSTER, SCRIPT

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(3 * 3600), needs_namespaces]

NO_JOBSET = 'no matches for kind "JobSet" in version "jobset.x-k8s.io/v1alpha2"'
INSTANCE, COMPONENT = "app.kubernetes.io/instance", "app.kubernetes.io/component"
COMPONENTS = ("head", "worker", "script")
PARTS = "jobset,pod,service,configmap,secret"
PRINT = "gangway kubernetes cluster.toml --image gangway:0.1.0"
SHIP = "--tls tls --ship train.py --rate 0.5"
# A job replaces a failed pod after 10 s, or 20, and a worker that ends may take 30 s for its work.
REPLACED_S = 120

Pod = dict[str, Any]


def name_of(pod: Pod) -> str:
    name: str = pod["metadata"]["name"]
    return name


def uid_of(pod: Pod) -> str:
    uid: str = pod["metadata"]["uid"]
    return uid


def index_of(pod: Pod) -> int:
    return int(pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"])


def is_ready(pod: Pod) -> bool:
    conditions = pod["status"].get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def is_active(pod: Pod) -> bool:
    return pod["status"].get("phase") not in ("Succeeded", "Failed")


class User:
    """A folder with a user's files, and the Kubernetes."""

    def __init__(self, server: KubernetesServer, kubelet: Kubelet, folder: pathlib.Path) -> None:
        self.server, self.kubelet, self.folder = server, kubelet, folder
        (folder / "cluster.toml").write_text(CLUSTER)
        (folder / "train.py").write_text(SCRIPT)
        (folder / "fail.py").write_text("import sys\nprint('no data')\nsys.exit(3)\n")
        self.do("gangway certs tls --any-host --days 1")
        self.do("gangway certs tls --add client --role client")

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        """By a shell, in the folder."""
        path = f"{ROOT / 'bin'}:{self.server.programs}:/usr/bin:/bin"
        return subprocess.run(
            ["bash", "-o", "pipefail", "-c", command],
            cwd=self.folder,
            env={**os.environ, **self.server.environment, "PATH": path},
            capture_output=True,
            text=True,
            timeout=180 * PATIENCE,
        )

    def do(self, command: str) -> str:
        """The output of a command that must succeed."""
        ran = self.run(command)
        assert ran.returncode == 0, f"{command}: {ran.stdout}{ran.stderr}"
        return ran.stdout

    def pods(self, component: str, cluster: str = "gangway") -> list[Pod]:
        """Those that have not ended, by index."""
        labels = f"{INSTANCE}={cluster},{COMPONENT}={component}"
        listed = json.loads(self.do(f"kubectl get pods -l {labels} -o json"))["items"]
        return sorted(filter(is_active, listed), key=index_of)

    def wait_ready(self, cluster: str = "gangway", limit_s: float = 120) -> None:
        def ready() -> bool:
            return any(map(is_ready, self.pods("head", cluster)))

        try:
            wait_for(f"{cluster} is ready", ready, limit_s)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.described(cluster)}") from None

    def log(self, component: str, cluster: str = "gangway") -> str:
        """Empty: it has not started."""
        labels = f"{INSTANCE}={cluster},{COMPONENT}={component}"
        return self.run(f"kubectl logs -l {labels} --tail=-1").stdout

    def steps(self) -> int:
        """Those of the script so far."""
        text = self.log("script")
        assert "Traceback" not in text, text
        return text.count("step ")

    def wait_for_steps(self, more: int = 3) -> None:
        made = self.steps()
        try:
            wait_for("more steps", lambda: self.steps() >= made + more, 120)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.described('gangway')}") from None

    def described(self, cluster: str) -> str:
        """What a failed test shows."""
        label = f"-l {INSTANCE}={cluster}"
        commands = [f"kubectl get {PARTS} -o wide {label}", f"kubectl describe jobset,pod {label}"]
        texts = [self.run(command).stdout[-8000:] for command in commands]
        texts += [f"--- {each}\n{self.log(each, cluster)[-2000:]}" for each in COMPONENTS]
        return "\n".join([*texts, *self.kubelet.errors])

    def wait_ended(self, cluster: str, how: str) -> None:
        """The JobSet has ended like this, and with it all pods."""
        limit = f"--timeout={160 * PATIENCE}s"
        self.do(f"kubectl wait --for=condition={how} jobset/{cluster} {limit}")

        def all_ended() -> bool:
            return not any(self.pods(component, cluster) for component in COMPONENTS)

        wait_for("the end of all pods", all_ended, 120)

    def left(self, cluster: str, parts: str = PARTS) -> str:
        return self.do(f"kubectl get {parts} -l {INSTANCE}={cluster} -o name")

    def delete(self, cluster: str) -> None:
        """As the guide says; nothing is left."""
        self.do(f"kubectl delete jobset,service,configmap,secret -l {INSTANCE}={cluster}")
        wait_for(f"the end of {cluster}", lambda: not self.left(cluster), 60)


@pytest.fixture(scope="module")
def without_jobset(tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    """Pods that ask for more privileges than they need are refused."""
    with contextlib.ExitStack() as stack:
        server = KubernetesServer(tmp_path_factory.mktemp("server"))
        stack.callback(server.stop)
        server.start()
        server.do("label", "namespace", "default", "pod-security.kubernetes.io/enforce=restricted")
        kubelet = Kubelet(server, tmp_path_factory.mktemp("node"))
        stack.callback(kubelet.stop)
        yield User(server, kubelet, tmp_path_factory.mktemp("user"))


@pytest.fixture(scope="module")
def user(without_jobset: User) -> User:
    without_jobset.server.install_jobset()
    return without_jobset


def test_a_kubernetes_without_jobset_says_so(without_jobset: User) -> None:
    user = without_jobset
    user.do(f"{PRINT} {SHIP} > train.yaml")
    refused = user.run("kubectl create -f train.yaml")
    assert refused.returncode != 0
    assert NO_JOBSET in refused.stderr and "ensure CRDs are installed first" in refused.stderr
    assert "configmap/gangway-files created" in refused.stdout
    user.run("kubectl delete -f train.yaml")  # as the guide says
    assert not user.left("gangway", "service,configmap,secret")


def test_training_goes_on_when_a_deleted_pod_comes_back(user: User) -> None:
    user.do(f"{PRINT} {SHIP} | kubectl create -f -")
    user.wait_ready()
    user.wait_for_steps(1)
    before = user.pods("worker")
    assert [index_of(pod) for pod in before] == [0, 1]

    user.do(f"kubectl delete pod {name_of(before[1])}")
    (head,) = user.pods("head")
    missing = "still waits for island0/worker1"
    wait_for("the reason", lambda: missing in user.do(f"kubectl describe pod {name_of(head)}"), 20)

    def replaced() -> bool:
        now = user.pods("worker")
        return [index_of(pod) for pod in now] == [0, 1] and all(map(is_ready, now))

    wait_for("a new pod", replaced, REPLACED_S)
    after = user.pods("worker")
    assert uid_of(after[0]) == uid_of(before[0])
    assert uid_of(after[1]) != uid_of(before[1])
    user.wait_ready()
    user.wait_for_steps()


def test_a_worker_whose_process_is_killed_comes_back(user: User) -> None:
    """After the one above, on the same cluster, as the two below."""
    before = user.pods("worker")[0]
    user.kubelet.process(name_of(before)).kill(signal.SIGKILL)

    def replaced() -> bool:
        now = {index_of(pod): pod for pod in user.pods("worker")}
        return 0 in now and is_ready(now[0]) and uid_of(now[0]) != uid_of(before)

    wait_for("a new pod", replaced, REPLACED_S)
    user.wait_ready()
    user.wait_for_steps()
    ended = json.loads(user.do(f"kubectl get pod {name_of(before)} -o json"))
    assert ended["status"]["phase"] == "Failed"


def test_a_second_cluster_of_this_name_changes_nothing(user: User) -> None:
    def uids() -> set[str]:
        return {uid_of(pod) for component in COMPONENTS for pod in user.pods(component)}

    before = uids()
    (user.folder / "wider.toml").write_text(CLUSTER.replace("workers = 2", "workers = 3"))
    wider = f"{PRINT} {SHIP}".replace("cluster.toml", "wider.toml")
    refused = user.run(f"{wider} | kubectl create -f -")
    assert refused.returncode != 0
    for name in ("gangway-files", "gangway-head", "gangway-tls", "gangway-client-tls", "gangway"):
        assert f'"{name}" already exists' in refused.stderr, refused.stderr
    applied = user.run(f"{wider} | kubectl apply -f -")
    assert applied.returncode != 0
    assert "field is immutable" in applied.stderr, applied.stderr
    user.wait_for_steps()
    assert uids() == before


def test_the_end_of_the_script_completes_the_jobset(user: User) -> None:
    (script,) = user.pods("script")
    assert user.kubelet.process(name_of(script)).exec(["touch", "/tmp/end"], 20)[0] == 0
    user.wait_ended("gangway", "Completed")
    assert user.log("script").splitlines()[-1] == "done"
    user.delete("gangway")


def test_a_cluster_without_its_secret_waits_for_it(user: User) -> None:
    """It has no script, and runs until it is deleted."""
    user.do(f"{PRINT} --name late | kubectl create -f -")

    def say_so() -> bool:
        pods = user.pods("head", "late") + user.pods("worker", "late")
        shown = [user.do(f"kubectl describe pod {name_of(pod)}") for pod in pods]
        said = ('secret "late-tls" not found', "ContainerCreating")
        return len(pods) == 3 and all(words in each for each in shown for words in said)

    wait_for("the reason", say_so, 60)
    files = "$(ls tls/*.pem tls/*token tls/verifiers | sed 's/^/--from-file=/')"
    user.do(f"kubectl create secret generic late-tls {files}")
    user.wait_ready("late")


def test_a_new_controllers_pod_gathers_the_workers(user: User) -> None:
    """After the one above, on the same cluster."""
    (before,) = user.pods("head", "late")
    workers = list(map(uid_of, user.pods("worker", "late")))
    user.do(f"kubectl delete pod {name_of(before)}")

    def replaced() -> bool:
        now = user.pods("head", "late")
        return len(now) == 1 and is_ready(now[0]) and uid_of(now[0]) != uid_of(before)

    try:
        wait_for("a new controller that is ready", replaced, 240)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{user.described('late')}") from None
    (after,) = user.pods("head", "late")
    assert after["status"]["podIP"] != before["status"]["podIP"]
    assert list(map(uid_of, user.pods("worker", "late"))) == workers
    user.delete("late")


def test_a_script_that_fails_fails_the_jobset(user: User) -> None:
    user.do(f"{PRINT} --name bad --tls tls --ship fail.py | kubectl create -f -")
    user.wait_ended("bad", "Failed")
    assert user.log("script", "bad").strip() == "no data"
    user.delete("bad")


def test_the_loss_of_the_controller_fails_the_script_and_the_jobset(user: User) -> None:
    """With the script that the guide begins with."""
    shutil.copy(ROOT / "examples" / "survive.py", user.folder)
    script = "--tls tls --ship survive.py --steps 1000000"
    user.do(f"{PRINT} --name lost {script} | kubectl create -f -")
    wait_for("a step", lambda: "step " in user.log("script", "lost"), 160)
    (head,) = user.pods("head", "lost")
    user.do(f"kubectl delete pod {name_of(head)}")
    user.wait_ended("lost", "Failed")
    assert "the session with the controller at lost-head:38601 was lost" in user.log(
        "script", "lost"
    )
    user.delete("lost")


KILLED = """
import pathlib, signal, sys
from kubernetes_server import KubernetesServer

server = KubernetesServer(pathlib.Path(sys.argv[1]))
server.start()
print(*server.pids(), flush=True)
signal.pause()
"""


def test_a_killed_test_leaves_no_process(tmp_path: pathlib.Path) -> None:
    killed = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path)],
        # It has leftovers.py clean up after itself alone.
        env={**os.environ, "PYTHONPATH": str(ROOT / "testing"), MARKER: ""},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert killed.stdout
    with killed:
        pids = list(map(int, killed.stdout.readline().split()))
        assert len(pids) == 3
        descriptors = list(map(os.pidfd_open, pids))
        killed.kill()
    try:
        for pid, descriptor in zip(pids, descriptors, strict=True):
            ended, _, _ = select.select([descriptor], [], [], 60 * PATIENCE)
            assert ended, f"{pid} lives"
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
