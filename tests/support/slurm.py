"""A real Slurm in a folder: munged, slurmctld and some slurmd of one CPU each, on loopback."""

import getpass
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from tests.support.processes import free_ports, run_command

T = TypeVar("T")
PATIENCE_S: Final = 120.0
PROGRAMS: Final = ("munged", "slurmctld", "slurmd", "sbatch")
MISSING: Final = [name for name in PROGRAMS if shutil.which(name) is None]
WHY_NOT: Final = f"not installed: {', '.join(MISSING)}" if MISSING else ""

BESIDE: Final = [name for name in ("slurmdbd", "mariadbd") if shutil.which(name) is None]
NO_ACCOUNTING: Final = WHY_NOT or (f"not installed: {', '.join(BESIDE)}" if BESIDE else "")

CONF: Final = """ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={controller_port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1,batch_sched_delay=0
PriorityType=priority/basic
ReturnToService=2
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
{accounting}
KillWait=1
{nodes}
PartitionName=batch Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
"""
DATABASE_CONF: Final = """AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
DbdHost=localhost
DbdPort={port}
SlurmUser={user}
PidFile={folder}/slurmdbd.pid
LogFile={folder}/slurmdbd.log
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser={user}
StorageLoc=accounting
"""


def until(condition: Callable[[], T], words: str) -> T:
    """The first answer that counts as true; AssertionError if none comes."""
    end_at = time.monotonic() + PATIENCE_S
    while not (answer := condition()):
        assert time.monotonic() < end_at, f"not within {PATIENCE_S:.0f} s: {words}"
        time.sleep(0.05)
    return answer


class SlurmCluster:
    """`down` ends all of it."""

    def __init__(self, folder: Path, nodes: int, *, has_accounting: bool = False) -> None:
        self.folder, self.nodes, self._has_accounting = folder, nodes, has_accounting
        self.environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def up(self) -> None:
        for name in ("state", "spool"):
            (self.folder / name).mkdir(parents=True)
        self._write_conf()
        self._start_munged()
        if self._has_accounting:
            self._start_accounting()
        self.start_controller()
        for node in range(self.nodes):
            self._start(f"n{node}", "slurmd", "-D", "-N", f"n{node}")
        ready = f"idle {self.nodes}"
        until(lambda: self.ask("sinfo", "-h", "-o", "%t %D").strip() == ready, "idle nodes")

    def down(self) -> None:
        """Jobs first: they are no children of what is ended then."""
        if "slurmctld" in self._processes:
            self.ask("scancel", "--signal=KILL", "--full", "-u", getpass.getuser())
            self.ask("scancel", "-u", getpass.getuser())
            until(lambda: not self.ask("squeue", "-h"), "an empty queue")
        for name in list(reversed(self._processes)):
            self._stop(name, signal.SIGTERM)

    def start_controller(self) -> None:
        self._start("slurmctld", "slurmctld", "-D")
        until(lambda: self.ask("scontrol", "ping").count("UP"), "an answer of slurmctld")

    def kill_controller(self) -> None:
        self._stop("slurmctld", signal.SIGKILL)

    def forget_jobs(self) -> None:
        """As a controller does after MinJobAge, with all jobs at once."""
        self.kill_controller()
        shutil.rmtree(self.folder / "state")
        (self.folder / "state").mkdir()
        self.start_controller()
        self.ask("scontrol", "update", "NodeName=ALL", "State=RESUME")

    def ask(self, *command: str) -> str:
        """What a command of Slurm prints; nothing if it fails."""
        answer = run_command(*command, env=self.environment)
        return answer.stdout if answer.returncode == 0 else ""

    def jobs(self) -> list[tuple[str, str, str]]:
        """Id, name and state of all jobs that Slurm remembers."""
        lines = self.ask("squeue", "-h", "-t", "all", "-o", "%i|%j|%T").splitlines()
        rows = (line.split("|") for line in lines)
        return sorted((job_id, name, state) for job_id, name, state in rows)

    def _start_accounting(self) -> None:
        """MariaDB on a socket of this folder, slurmdbd over it, this cluster in it."""
        place, data = self.folder / "mariadb.socket", self.folder / "mariadb"
        at = ("--no-defaults", f"--datadir={data}", f"--user={getpass.getuser()}")
        subprocess.run(
            ["mariadb-install-db", *at, "--skip-test-db"], check=True, capture_output=True
        )
        options = ("--skip-networking", "--skip-grant-tables", "--innodb-buffer-pool-size=32M")
        self._start("mariadbd", "mariadbd", *at, f"--socket={place}", *options)
        ping = ("mariadb-admin", "--no-defaults", f"--socket={place}", "ping")
        until(lambda: self.ask(*ping), "an answer of MariaDB")
        self.environment["MYSQL_UNIX_PORT"] = str(place)
        self._start("slurmdbd", "slurmdbd", "-D")
        until(lambda: self.ask("sacctmgr", "-n", "-i", "add", "cluster", "test"), "slurmdbd")

    def _write_conf(self) -> None:
        *ports, database_port = free_ports(self.nodes + 2)
        accounting = "AccountingStorageType=accounting_storage/none"
        if self._has_accounting:
            accounting = (
                "AccountingStorageType=accounting_storage/slurmdbd\n"
                f"AccountingStorageHost=localhost\nAccountingStoragePort={database_port}\n"
                f"AccountingStoragePass={self.folder}/munge.socket"
            )
            path = self.folder / "slurmdbd.conf"
            path.touch(mode=0o600)
            path.write_text(
                DATABASE_CONF.format(folder=self.folder, port=database_port, user=getpass.getuser())
            )
        host = socket.gethostname().split(".")[0]
        lines = [
            f"NodeName=n{node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=1"
            " RealMemory=100 State=UNKNOWN"
            for node, port in enumerate(ports[1:])
        ]
        text = CONF.format(
            host=host,
            user=getpass.getuser(),
            folder=self.folder,
            controller_port=ports[0],
            accounting=accounting,
            nodes="\n".join(lines),
        )
        (self.folder / "slurm.conf").write_text(text)

    def _start_munged(self) -> None:
        key = self.folder / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        files = {"key-file": "key", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        options = [f"--{name}={self.folder}/munge.{end}" for name, end in files.items()]
        place = f"{self.folder}/munge.socket"
        self._start("munged", "munged", "--foreground", "--force", f"--socket={place}", *options)
        munge = ("munge", "-n", f"--socket={place}")
        until(lambda: self.ask(*munge), "an answer of munged")

    def _start(self, name: str, *command: str) -> None:
        with (self.folder / f"{name}.out").open("ab") as output:
            self._processes[name] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self.environment,
                start_new_session=True,
            )

    def _stop(self, name: str, number: signal.Signals) -> None:
        process = self._processes.pop(name)
        process.send_signal(number)
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
