"""A Slurm cluster of simulated hosts on this machine, for tests: a real slurmctld and a real slurmd for each node.

Each host is a set of namespaces of its own (processes, network, host name, IPC, mounts), with its own address and its
own /dev/shm; the file system is shared otherwise. All hosts live in the process namespace of a first one, which ends
when its standard input ends: when the test process dies, however it dies, the kernel ends all processes, networks and
mounts of the cluster. Needs root.

Slurm runs without munge: the cluster is reachable from within its own network only.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import signal
import subprocess
from typing import Any

from harness import PATIENCE, ends_with_this_process, wait_for
from leftovers import MARKER

# The first process of a host: it has set up what needs no other host, reaps orphans, and ends with its input.
INIT = """
set -e
hostname "$1"
ip link set lo up
mount -t tmpfs -o size=64m tmpfs /dev/shm
[ -z "$2" ] || mount --bind "$2" /etc/hosts
echo up
read -r _ || true
"""
NETWORK = "10.77.0"
CONFIG = """
ClusterName=test
SlurmctldHost=login({address})
AuthType=auth/none
CredType=cred/none
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
SlurmdParameters=config_overrides
GresTypes=gpu
ReturnToService=2
SlurmdTimeout={silence_s}
SlurmctldTimeout=30
KillWait={kill_wait_s}
InactiveLimit=0
GresTypes=gpu
NodeName=node[1-{nodes}] CPUs=4 RealMemory=8000 Gres=gpu:2 State=UNKNOWN
PartitionName=test Nodes=ALL Default=YES MaxTime=60 State=UP OverSubscribe=NO
"""


class Host:
    """Namespaces that stand for a host: what runs in them ends with `kill`."""

    def __init__(self, name: str, hosts_file: pathlib.Path, inside: Host | None = None) -> None:
        self.name = name
        namespaces = ["--pid", "--net", "--uts", "--ipc", "--mount", "--fork", "--mount-proc"]
        init = ["bash", "-c", INIT, "init", name, str(hosts_file)]
        self._process = subprocess.Popen(
            [*(inside.enter if inside else []), "unshare", *namespaces, *init],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout
        said = self._process.stdout.readline()
        assert said == "up\n", f"the namespaces of {name} could not be made: {said}"
        self.pid = youngest(self._process.pid)

    @property
    def enter(self) -> list[str]:
        return ["nsenter", "--target", str(self.pid), "--all"]

    def command(self, *words: str | pathlib.Path, cwd: pathlib.Path | str = "/") -> list[str]:
        change = ["sh", "-c", 'cd "$1" && shift && exec "$@"', "sh", str(cwd)]
        return [*self.enter, *change, *map(str, words)]

    def run(
        self,
        *words: str | pathlib.Path,
        cwd: pathlib.Path | str = "/",
        timeout_s: float = 60,
        **options: Any,
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*words, cwd=cwd),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s * PATIENCE,
            **options,
        )

    def do(self, *words: str | pathlib.Path, **options: Any) -> str:
        """The output of a command that must succeed."""
        done = self.run(*words, **options)
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    def kill(self) -> None:
        """As a power failure does: all its processes end at once, and its network is gone."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self._process.wait(10 * PATIENCE)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe:
                pipe.close()


def youngest(pid: int) -> int:
    """The last of a chain of processes, each the only child of the one before."""
    while children := pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        pid = int(children[0])
    return pid


class Slurm:
    """A cluster with the nodes node1, node2, ..., and the host `login`, which runs slurmctld. Users are in `home`, of
    which only `login` and node1 see the files, and `gangway` is in their PATH. A node that is silent for `silence_s` is
    down; what ignores SIGTERM for `kill_wait_s` is killed.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        gangway: pathlib.Path,
        *,
        nodes: int = 3,
        silence_s: int = 10,
        kill_wait_s: int = 15,
    ) -> None:
        ends_with_this_process()
        self.folder = folder
        self.names = [f"node{i + 1}" for i in range(nodes)]
        self.nodes: dict[str, Host] = {}
        self._daemons: list[subprocess.Popen[bytes]] = []
        self._addresses = {"login": f"{NETWORK}.1"} | {
            name: f"{NETWORK}.{10 + i}" for i, name in enumerate(self.names)
        }
        self._slurm = folder / "slurm"
        (self._slurm / "state").mkdir(parents=True)
        self._hosts = self._slurm / "hosts"
        lines = [f"{address} {name}\n" for name, address in self._addresses.items()]
        self._hosts.write_text("127.0.0.1 localhost\n" + "".join(lines))
        config = self._slurm / "slurm.conf"
        config.write_text(
            CONFIG.format(
                folder=self._slurm,
                silence_s=silence_s,
                kill_wait_s=kill_wait_s,
                nodes=nodes,
                address=self._addresses["login"],
            )
        )
        # Any two devices do: the tests have no GPU.
        (self._slurm / "gres.conf").write_text("Name=gpu File=/dev/null\nName=gpu File=/dev/zero\n")
        self.home, self.bin = folder / "home", folder / "bin"
        self.home.mkdir()
        self.bin.mkdir()
        (self.bin / "gangway").symlink_to(gangway.resolve())
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("GANGWAY_", "SLURM_")) or name == MARKER
        }
        path = f"{self.bin}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
        self.environment = {**inherited, "SLURM_CONF": str(config), "PATH": path}
        self.login = Host("login", self._hosts)

    def start(self) -> Slurm:
        ip = ["nsenter", "--target", str(self.login.pid), "--net", "ip"]
        for words in (
            "link add switch0 type bridge",
            "link set switch0 up",
            f"addr add {self._addresses['login']}/24 dev switch0",
        ):
            subprocess.run([*ip, *words.split()], check=True, timeout=10 * PATIENCE)
        self._daemon(self.login, "/usr/sbin/slurmctld", "-D", "-i")
        for name in self.names:
            self.start_node(name)
        self.wait_for_nodes()
        return self

    def start_node(self, name: str) -> None:
        """Also one that was killed."""
        node = self.nodes[name] = Host(name, self._hosts, inside=self.login)
        port = ["link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", str(node.pid)]
        enter = ["nsenter", "--target", str(self.login.pid), "--net"]
        for command in (
            [*enter, "ip", *port],
            [*enter, "ip", "link", "set", name, "master", "switch0", "up"],
            [*node.enter, "ip", "addr", "add", f"{self._addresses[name]}/24", "dev", "eth0"],
            [*node.enter, "ip", "link", "set", "eth0", "up"],
        ):
            subprocess.run(command, check=True, timeout=10 * PATIENCE)
        if name != self.names[0]:
            node.do("mount", "-t", "tmpfs", "tmpfs", self.home)
        self._daemon(node, "/usr/sbin/slurmd", "-D", "-N", name)

    def kill_node(self, name: str) -> None:
        self.nodes.pop(name).kill()

    def _daemon(self, host: Host, *words: str) -> None:
        with (self._slurm / f"{host.name}.log").open("ab") as log:
            self._daemons.append(
                subprocess.Popen(host.command(*words), env=self.environment, stdout=log, stderr=log)
            )

    def wait_for_nodes(self) -> None:
        idle = ["idle"] * len(self.names)
        wait_for("all nodes idle", lambda: self.do("sinfo", "-hN", "-o", "%t").split() == idle, 30)

    def do(self, *words: str | pathlib.Path, **environment: str) -> str:
        """The output of a user's command on the login host, which must succeed."""
        done = self.run(*words, **environment)
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    def run(
        self, *words: str | pathlib.Path, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        return self.login.run(*words, cwd=self.home, env={**self.environment, **environment})

    def submit(self, *words: str | pathlib.Path, **environment: str) -> Job:
        """`sbatch WORDS` on all nodes, unless these say otherwise."""
        said = self.do("sbatch", "--parsable", f"--nodes={len(self.names)}", *words, **environment)
        return Job(self, int(said))

    def jobs(self) -> str:
        return self.do("squeue", "-h")

    def processes(self, node: str) -> dict[int, list[str]]:
        """The command lines of all processes of a node beside the first one and slurmd."""
        first = self.nodes[node].pid
        space = os.readlink(f"/proc/{first}/ns/pid")
        found = {}
        for path in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it has ended
                if int(path.name) != first and os.readlink(path / "ns/pid") == space:
                    words = (path / "cmdline").read_bytes().decode().split("\0")
                    if words[0] != "/usr/sbin/slurmd":
                        found[int(path.name)] = words
        return found

    def workers(self, node: str) -> list[int]:
        """Process ids of the node's workers."""
        listed = self.processes(node).items()
        return [
            pid for pid, words in listed if words[0].endswith("gangway") and words[1] == "worker"
        ]

    def environment_of(self, pid: int) -> dict[str, str]:
        entries = pathlib.Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
        return {name: value for name, _, value in (each.partition("=") for each in entries)}

    def left(self) -> list[str]:
        """Processes on the nodes, and files in their memory."""
        found = []
        for name, node in self.nodes.items():
            found += [f"{name}: {' '.join(words)}" for words in self.processes(name).values()]
            found += [f"{name}: {each}" for each in node.do("ls", "-A", "/dev/shm").split()]
        return found

    def wait_for_nothing_left(self, within_s: float) -> None:
        try:
            wait_for("no processes and files left", lambda: not self.left(), within_s)
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.left()}") from None

    def stop(self) -> None:
        """Ends everything at once; the kernel does it, since all processes are in the namespace of `login`."""
        self.login.kill()
        for node in self.nodes.values():
            node.kill()
        for daemon in self._daemons:
            daemon.wait(10 * PATIENCE)


class Job:
    """A batch job, and the folder that gangway.sbatch makes for it."""

    def __init__(self, slurm: Slurm, number: int) -> None:
        self._slurm = slurm
        self.number = number
        self.folder = slurm.home / f"gangway-{number}"

    @property
    def output(self) -> str:
        path = self._slurm.home / f"slurm-{self.number}.out"
        return path.read_text(errors="replace") if path.exists() else ""

    def logs(self) -> str:
        """What a failed test shows."""
        paths = sorted(self.folder.rglob("*.log"))
        texts = [f"--- {path}\n{path.read_text(errors='replace')[-3000:]}" for path in paths]
        return "\n".join([self.output, *texts])

    def fields(self) -> dict[str, str]:
        shown = self._slurm.do("scontrol", "--oneliner", "show", "job", str(self.number))
        return {key: value for key, _, value in (word.partition("=") for word in shown.split())}

    def wait(self, within_s: float) -> int:
        """Waits for its end; the exit status of the batch script."""
        ended = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
        fields: dict[str, str] = {}

        def has_ended() -> bool:
            fields.update(self.fields())
            running = self._slurm.do("squeue", "-h", f"--jobs={self.number}", "-o", "%i").split()
            return fields["JobState"] in ended and not running

        try:
            wait_for(f"the end of job {self.number}", has_ended, within_s)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.logs()}") from None
        return int(fields["ExitCode"].partition(":")[0])

    def wait_for_words(self, words: str, within_s: float = 120) -> None:
        try:
            wait_for(f"{words!r} in the output", lambda: words in self.output, within_s)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.logs()}") from None

    def node_of(self, worker: int) -> str:
        """The node on which this worker's newest job step runs."""
        log = self.folder / f"worker-{worker}.log"
        started = re.compile(r"^gangway: worker \d+ starts on (\S+)", re.MULTILINE)
        found: list[str] = wait_for(log.name, lambda: started.findall(log.read_text()), 10)
        return found[-1]

    def cancel(self, *flags: str) -> None:
        self._slurm.do("scancel", *flags, str(self.number))
