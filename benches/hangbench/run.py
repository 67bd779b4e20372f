"""Makes one run: brings hosts up, starts the job, does what the plan says, and keeps what a job leaves behind."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import time
import traceback
from pathlib import Path
from typing import Any

import host
import plan as plans
import words
from lab import Lab
from plan import Plan
from truth import truth

SRV = Path("/srv")
LIMIT_S = 75.0
"""Until a job that should have ended is ended."""


class Run:
    """A run that is being made."""

    def __init__(self, plan: Plan, folder: Path, number: int, real: bool) -> None:
        self.plan = plan
        self.folder = folder
        self.real = real
        self.lab = Lab(number, plan.hosts)
        self.project = SRV / plan.names["project"]
        self.agents: dict[int, int] = {}
        self.choose = random.Random(f"run {plan.name}")
        self.looked = False
        self.ends: list[int] = []
        """How torchrun ended on each host where it did so by itself."""

    def make(self) -> None:
        """Make it, and write truth.json last."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        host.unshare(host.CLONE_NEWNS)
        self.write_project()
        self.lab.up()
        try:
            for number in range(1, self.plan.hosts + 1):
                self.start(number)
            self.watch()
        finally:
            self.lab.down()
            for pid in self.agents.values():
                with contextlib.suppress(ProcessLookupError, ChildProcessError):
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
        self.collect()
        if plans.goes_on(self.plan) != (len(self.ends) == self.plan.hosts and not any(self.ends)):
            raise RuntimeError(f"{self.plan.name}: the job went well, or did not, against the plan: {self.ends}")
        (self.folder / "truth.json").write_text(json.dumps(truth(self.plan, self.folder, self.real), indent=1) + "\n")

    def write_project(self) -> None:
        """Write the job's program, settings and data."""
        plan = self.plan
        work = self.folder / "work"
        for name in ("shards", "config", "heartbeats", "fr", "checkpoints", *(f"logs/h{n}" for n in self.hosts())):
            (work / name).mkdir(parents=True, exist_ok=True)
        for name, text in words.program(plan).items():
            (work / name).write_text(text)
        (work / "config.json").write_text(json.dumps(plan.settings))
        for rank in range(plan.world):
            (work / "shards" / f"{rank:05d}.jsonl").write_text(plans.shard(plan, rank))
            if rank in plan.own:
                (work / "config" / f"{rank}.json").write_text(json.dumps(plan.own[rank]))
        os.mkfifo(work / "shards/stream")
        self.project.mkdir(parents=True, exist_ok=True)
        host.bind(work, self.project)
        if plan.disk_bytes:
            host.mount_tmpfs(self.project / "checkpoints", plan.disk_bytes)

    def hosts(self) -> range:
        """Count the hosts from 1, as netlab does."""
        return range(1, self.plan.hosts + 1)

    def start(self, number: int) -> None:
        """Start torchrun on a host."""
        plan = self.plan
        options = [
            *("--nnodes", str(plan.hosts), "--nproc-per-node", str(plan.per_host)),
            *("--node-rank", str(number - 1), "--master-addr", "h1", "--master-port", "29500"),
            *("--log-dir", str(self.project / f"logs/h{number}"), *plan.launcher),
            str(self.project / f"{plan.names['train']}.py"),
        ]
        pid = os.fork()
        if pid == 0:
            try:
                os.chdir(self.project)
                os.environ.update(plan.variables)
                log = self.project / f"logs/h{number}.log"
                host.run_agent(f"h{number}", self.lab.network(number), self.lab.hosts_file, log, options, self.real)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(99)
        self.agents[number] = pid

    def beats(self) -> dict[int, tuple[int, int]]:
        """Read each rank's process and step."""
        found = {}
        for path in (self.folder / "work/heartbeats").glob("[0-9]*"):
            if path.suffix:
                continue
            with contextlib.suppress(OSError, ValueError):
                pid, step = map(int, path.read_text().split())
                found[int(path.name)] = (pid, step)
        return found

    def living(self) -> list[int]:
        """Return the hosts whose torchrun has not ended."""
        for number, pid in list(self.agents.items()):
            with contextlib.suppress(ChildProcessError):
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    self.ends.append(status)
                    del self.agents[number]
        return list(self.agents)

    def watch(self) -> None:
        """Follow the job to its end; do to it what is to be done when it is there."""
        plan = self.plan
        begin = time.monotonic()
        until = begin + LIMIT_S
        slow_since = None
        hurt = not plans.goes_on(plan) and plan.fault not in plans.OUTSIDE
        while self.living() and time.monotonic() < until:
            time.sleep(0.1)
            beats = self.beats()
            least = min(step for _, step in beats.values()) - self.first() if len(beats) == plan.world else 0
            if not hurt and least >= plan.at_step:
                hurt = True
                self.hurt(beats)
                until = min(until, time.monotonic() + 45)
                slow_since = time.monotonic() if plan.fault == "slow-link" else None
            if plan.asked_at and least >= plan.asked_at:
                (self.folder / "work/dump.now").touch()
            if slow_since and time.monotonic() > slow_since + 8:
                # It may still move, slower than anybody likes, and a person asks for a dump.
                (self.folder / "work/dump.now").touch()
            if not self.looked and plan.fault not in plans.AT_ONCE and any((self.folder / "work/fr").iterdir()):
                time.sleep(1.0)
                self.look(self.beats())
                until = min(until, time.monotonic() + self.patience())
        if self.agents:
            self.stop()

    def patience(self) -> float:
        """How long a person waits for a job that has been looked at to end by itself."""
        if plans.goes_on(self.plan):
            return 60.0
        if self.plan.settings["timeout_s"] > 60:
            return 3.0
        return self.plan.settings["timeout_s"] + (34.0 if self.plan.fault == "stopped" else 8.0)

    def first(self) -> int:
        """Return the step before the job's first."""
        return self.plan.settings["first_step"]

    def hurt(self, beats: dict[int, tuple[int, int]]) -> None:
        """Do what is done from outside."""
        plan = self.plan
        if plan.fault == "late-link":
            self.lab.slow(plan.culprit_host or 1, plan.late_rate)
        elif plan.fault in ("killed", "stopped"):
            number = signal.SIGKILL if plan.fault == "killed" else signal.SIGSTOP
            for rank in plan.culprits:
                os.kill(beats[rank][0], number)
        elif plan.fault == "cut-link":
            self.lab.cut(plan.culprit_host or 1)
        elif plan.fault == "slow-link":
            self.lab.slow(plan.culprit_host or 1, self.choose.choice(["32kbit", "64kbit", "128kbit"]))

    def look(self, beats: dict[int, tuple[int, int]]) -> None:
        """Take stacks and what the system says of processes and sockets."""
        self.looked = True
        stacks = self.folder / "stacks"
        stacks.mkdir()
        for rank, (pid, _) in sorted(beats.items()):
            state = _state(pid)
            if state is None:
                continue
            # A stopped process cannot be made to pause for py-spy.
            how = ["--nonblocking"] if state == "T" else []
            with contextlib.suppress(subprocess.TimeoutExpired):
                command = [_spy(), "dump", *how, "--pid", str(pid)]
                said = subprocess.run(command, capture_output=True, text=True, timeout=15, check=False)
                if said.returncode == 0:
                    (stacks / f"rank{rank}.txt").write_text(said.stdout)
        for number in self.hosts():
            mine = [str(pid) for rank, (pid, _) in beats.items() if self.plan.host_of(rank) == number]
            if mine:
                command = ["ps", "-o", "pid,stat,wchan:20,etime,args", "-p", ",".join(mine)]
                said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
                (stacks / f"h{number}.ps.txt").write_text(said)
            (stacks / f"h{number}.ss.txt").write_text(self.lab.look(number, "ss", "-tinp", "state", "established"))

    def stop(self) -> None:
        """End what has not ended, as scancel does."""
        for pid in self.agents.values():
            os.kill(pid, signal.SIGTERM)
        self.ends.append(-1)
        until = time.monotonic() + 5
        while self.living() and time.monotonic() < until:
            time.sleep(0.1)

    def collect(self) -> None:
        """Keep what a job leaves behind."""
        work = self.folder / "work"
        if self.plan.disk_bytes:
            host.unmount(self.project / "checkpoints")
        host.unmount(self.project)
        for name in ("logs", "fr"):
            shutil.move(work / name, self.folder / name)
        for path in sorted(self.folder.rglob("*"), reverse=True):
            if path.is_file() and path.stat().st_size == 0:
                path.unlink()
            elif path.is_dir() and not any(path.iterdir()):
                path.rmdir()
        if not os.environ.get("HANGBENCH_KEEP"):
            shutil.rmtree(work)


def _state(pid: int) -> str | None:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return None


def _spy() -> str:
    found: Any = os.environ.get("PY_SPY") or shutil.which("py-spy")
    return found
