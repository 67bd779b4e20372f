"""A host of a run: torchrun within the lab's network namespace, its ranks forked where torch is imported already.

torch.distributed.run is the real one; only its Popen is another, which forks instead of starting Python anew.
"""

from __future__ import annotations

import _thread
import atexit
import contextlib
import ctypes
import io
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
import types
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWNET = 0x00020000, 0x04000000, 0x40000000
PR_SET_CHILD_SUBREAPER = 36
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000
_libc = ctypes.CDLL(None, use_errno=True)


def _called(result: int, what: str) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    """Leave namespaces that are shared with the parent."""
    _called(_libc.unshare(flags), "unshare")
    if flags & CLONE_NEWNS:
        _called(_libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None), "mount --make-rprivate /")


def bind(source: Path, target: Path) -> None:
    """Show a file or folder at another place, in this mount namespace."""
    _called(_libc.mount(bytes(source), bytes(target), None, MS_BIND | MS_REC, None), f"mount --bind {target}")


def mount_tmpfs(target: Path, size: int) -> None:
    """Give a folder a disk of its own, of so many bytes."""
    _called(_libc.mount(b"none", bytes(target), b"tmpfs", 0, f"size={size}".encode()), f"mount {target}")


def unmount(target: Path) -> None:
    """Take a mount away, also while files of it are open."""
    _called(_libc.umount2(bytes(target), 2), f"umount {target}")


def enter_network(name: str) -> None:
    """Move this thread into a named network namespace."""
    with Path("/run/netns", name).open() as file:
        _called(_libc.setns(file.fileno(), CLONE_NEWNET), f"setns {name}")


def retitle(words: list[str]) -> None:
    """Let ps and py-spy show these words as this process's command."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    begin, end = int(fields[45]), int(fields[46])
    text = "\0".join(words).encode()[: end - begin - 1]
    ctypes.memmove(begin, text.ljust(end - begin, b"\0"), end - begin)


class Nursery:
    """Forks ranks from a process of one thread: torchrun has several, whose locks a child would find taken."""

    def __init__(self) -> None:
        # Ranks become children of this process when the one that forked them ends.
        _called(_libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl")
        self.ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if os.fork() == 0:
            self.ours.close()
            try:
                _serve(theirs)
            finally:
                os._exit(0)
        theirs.close()

    def begin(self, args: list[str], env: dict[str, str], out: int | None, err: int | None) -> int:
        """Start a rank and return its process."""
        fds = [1 if out is None else out, 2 if err is None else err]
        socket.send_fds(self.ours, [json.dumps([args, env]).encode()], fds)
        return int(self.ours.recv(100))


def _serve(requests: socket.socket) -> None:
    """Fork a rank per request, until torchrun has gone."""
    while True:
        message, fds, _, _ = socket.recv_fds(requests, 1 << 20, 2)
        if not message:
            return
        pid = os.fork()
        if pid == 0:
            _fork_rank(requests, message, fds)
        os.waitpid(pid, 0)
        for fd in fds:
            os.close(fd)


def _fork_rank(requests: socket.socket, message: bytes, fds: list[int]) -> NoReturn:
    """Fork a rank, tell its number, and end, so that torchrun becomes its parent.

    The thread that forks is the child's main thread, so that the rank's stack has nothing of this file's. What is left
    looks as under `python -m`.
    """

    def fork() -> None:
        rank = os.fork()
        if rank:
            requests.send(str(rank).encode())
            os._exit(0)
        program = _begin(message, fds)
        try:
            exec(program.code, program.module.__dict__)
        except BaseException as error:
            _end(error)
        _end(None)

    names = {"co_filename": "<frozen runpy>", "co_name": "_run_code", "co_qualname": "_run_code"}
    fork.__code__ = fork.__code__.replace(**names)
    _thread.start_new_thread(fork, ())
    while True:
        time.sleep(10)


class Forked:
    """What torchrun needs of a Popen."""

    def __init__(self, args: list[str], pid: int) -> None:
        self.args = args
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return how it has ended, if it has."""
        if self.returncode is None:
            with contextlib.suppress(ChildProcessError):
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                if pid:
                    self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end."""
        until = time.monotonic() + (timeout if timeout is not None else 1e9)
        while self.poll() is None:
            if time.monotonic() > until:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            time.sleep(0.02)
        return self.returncode or 0


@dataclass
class Program:
    """What a forked rank is about to run."""

    code: types.CodeType
    module: types.ModuleType


def _begin(message: bytes, fds: list[int]) -> Program:
    """Become what `python -u SCRIPT` is after its start."""
    args, env = json.loads(message)
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for given, own in zip(fds, (1, 2)):
        os.dup2(given, own)
    os.closerange(3, 4096)
    os.environ.clear()
    os.environ.update(env)
    atexit._clear()
    for handler in list(logging.root.handlers):
        logging.root.removeHandler(handler)
    warnings.resetwarnings()
    sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False), encoding="utf-8", write_through=True)
    sys.stderr = io.TextIOWrapper(io.FileIO(2, "w", closefd=False), encoding="utf-8", write_through=True)
    script = Path(args[-1]).resolve()
    retitle([*args[:-1], str(script)])
    Path("/proc/self/comm").write_text(Path(args[0]).name)
    sys.argv = [str(script)]
    sys.path[0] = str(script.parent)
    module = types.ModuleType("__main__")
    module.__file__ = str(script)
    sys.modules["__main__"] = module
    return Program(compile(script.read_text(), str(script), "exec"), module)


def _end(error: BaseException | None) -> None:
    """End as the interpreter does."""
    code = 0
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    elif error is not None:
        code = 1
        # Not this file's frame. The hook is PyTorch's own, which puts the rank in front.
        error.__traceback__ = error.__traceback__.tb_next if error.__traceback__ else None
        sys.excepthook(type(error), error, error.__traceback__)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def run_agent(name: str, network: str, hosts_file: Path, log: Path, words: list[str], real: bool) -> None:
    """Run torchrun as host `name`, and end this process with it (never returns)."""
    enter_network(network)
    unshare(CLONE_NEWUTS | CLONE_NEWNS)
    socket.sethostname(name)
    bind(hosts_file, Path("/etc/hosts"))
    os.setsid()
    # Accepts and never answers: an object store that hangs. The backlog of a listener is enough.
    silent = socket.create_server(("127.0.0.1", 9000))
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), 1)
    os.dup2(1, 2)
    os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
    if real:
        os.set_inheritable(silent.fileno(), True)
        os.execv(sys.executable, [sys.executable, "-m", "torch.distributed.run", *words])
    retitle([sys.executable, "/srv/python/bin/torchrun", *words])
    sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False), encoding="utf-8", write_through=True)
    sys.stderr = io.TextIOWrapper(io.FileIO(2, "w", closefd=False), encoding="utf-8", write_through=True)
    sys.argv = ["/srv/python/bin/torchrun", *words]
    nursery = Nursery()
    try:
        _torchrun(words, nursery)
    except BaseException as error:
        error.__traceback__ = error.__traceback__.tb_next if error.__traceback__ else None
        _end(error)
    _end(None)


def _torchrun(words: list[str], nursery: Nursery) -> None:
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing.subprocess_handler.subprocess_handler import SubprocessHandler

    def popen(handler: SubprocessHandler, args: tuple[str, ...], env: dict[str, str]) -> Forked:
        out, err = (file.fileno() if file else None for file in (handler._stdout, handler._stderr))
        return Forked(list(args), nursery.begin(list(args), env, out, err))

    SubprocessHandler._popen = popen
    run.main(words)
