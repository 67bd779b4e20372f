"""Asks PyTorch's fr_trace (torchfrtrace), as it is and with dumps that are repaired for it, whom it names."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import pickle
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from truth import read_dump


def repair(dump: dict[str, Any], rank: int, truth: dict[str, Any]) -> dict[str, Any]:
    """Write into a dump of Gloo what NCCL's has: the ranks of each group, and that retired collectives are complete.

    PyTorch 2.15's ProcessGroupGloo records its groups without a name, on which fr_trace stops with a KeyError.
    """
    groups = {
        number: {"name": number, "desc": group["desc"], "ranks": str(group["ranks"])}
        for number, group in truth["groups"].items()
        if rank in group["ranks"]
    }
    entries = []
    for entry in dump.get("entries", []):
        state = "completed" if entry["retired"] else "started"
        entries.append({**entry, "state": state, "frames": entry.get("frames", [])})
    return {**dump, "pg_config": groups, "entries": entries}


def ask(dumps: dict[int, Path], truth: dict[str, Any], repaired: bool) -> tuple[list[list[int]], str | None]:
    """Return whom each of its reports names, in their order, and why it gave none."""
    with tempfile.TemporaryDirectory(prefix="hangbench-") as folder:
        for rank, path in dumps.items():
            dump = read_dump(path)
            if repaired:
                dump = repair(dump, rank, truth)
            (Path(folder) / f"trace_{rank}").write_bytes(pickle.dumps(dump))
        said = _output(["--allow-incomplete-ranks"] * (len(dumps) < truth["ranks"]) + ["-p", "trace_", folder])
    found = []
    for missing, culprits in re.findall(r"missing ranks: \{([\d, ]+)\}|error msg: ([^\n]*Culprit rank[^\n]*)", said):
        numbers = re.findall(r"Culprit rank (\d+)", culprits) or re.findall(r"\d+", missing)
        found.append(sorted(set(map(int, numbers))))
    absent = re.findall(r"dumps? (?:files )?from ranks \(?\{([\d, ]+)\}", said)
    if absent and not found and truth["class"] != "none":
        # It says that it cannot decide without the dumps of these ranks: read generously, it names them.
        found.append(sorted(map(int, re.findall(r"\d+", absent[0]))))
    failed = re.findall(r"^(?:\w+\.)*\w*(?:Error|Exception)\b.*", said, re.MULTILINE)
    return found, failed[-1] if failed and not found else None


def _output(words: list[str]) -> str:
    """Run it in a fork, since importing torch anew would take seconds."""
    # Imported here, not in each fork.
    from torch.distributed.flight_recorder import fr_trace  # noqa: F401

    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.dup2(writing, 1)
        os.dup2(writing, 2)
        sys.stdout = sys.stderr = io.TextIOWrapper(io.FileIO(1, "w", closefd=False), write_through=True)
        with contextlib.suppress(BaseException):
            _main(words)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8", errors="replace") as pipe:
        said = pipe.read()
    os.waitpid(pid, 0)
    return said


def _main(words: list[str]) -> None:
    import traceback

    from torch.distributed.flight_recorder import fr_trace

    logging.disable(logging.NOTSET)
    try:
        fr_trace.main(words)
    except BaseException:
        traceback.print_exc()
