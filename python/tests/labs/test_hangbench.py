"""benches/hangbench makes jobs that hang for real: what they leave behind shows what truth.json says."""

from __future__ import annotations

import json
import os
import pickle
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HANGBENCH = Path(__file__).resolve().parents[3] / "benches/hangbench"

LABS = "15,16"
"""Apart from those of the benchmark itself, which may run too."""


def spy() -> str | None:
    beside = Path(sys.executable).parent / "py-spy"
    return os.environ.get("PY_SPY") or (str(beside) if beside.exists() else shutil.which("py-spy"))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    if shutil.which("ip") is None or shutil.which("unshare") is None:
        pytest.skip("iproute2 or util-linux is missing")
    if spy() is None:
        pytest.skip("py-spy is not installed")
    return tmp_path_factory.mktemp("hangs")


def make(folder: Path, fault: str, shape: str, *options: str) -> tuple[Path, dict[str, Any]]:
    words = ["--seeds", "2", "--shapes", shape, "--faults", fault, "--labs", LABS, "--out", folder, *options]
    environment = {**os.environ, "PY_SPY": str(spy())}
    done = subprocess.run(
        [sys.executable, HANGBENCH, *words], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    run = folder / f"{fault}-{shape}-2"
    return run, json.loads((run / "truth.json").read_text())


def entries(path: Path) -> list[dict[str, Any]]:
    content = path.read_bytes()
    return (json.loads(content) if path.suffix == ".json" else pickle.loads(content))["entries"]


def dumps(run: Path) -> dict[int, list[dict[str, Any]]]:
    return {int(path.stem.rpartition("_")[2]): entries(path) for path in (run / "fr").iterdir()}


def launchers(run: Path) -> str:
    return "".join(path.read_text() for path in sorted((run / "logs").glob("h*.log")))


def test_a_rank_that_evaluates_waits_for_nothing_and_the_others_wait_for_it(runs: Path) -> None:
    run, truth = make(runs, "evaluation", "ddp")
    found = dumps(run)
    assert sorted(found) == list(range(truth["ranks"]))
    (culprit,) = truth["culprit_ranks"]
    assert all(entry["retired"] for entry in found[culprit])
    waiting = truth["waiting"][0]
    assert waiting["ranks"] == [rank for rank in range(truth["ranks"]) if rank != culprit]
    for rank in waiting["ranks"]:
        assert any(not one["retired"] and one["collective_seq_id"] == waiting["seq"] for one in found[rank])
    stacks = {rank: (run / f"stacks/rank{rank}.txt").read_text() for rank in range(truth["ranks"])}
    assert not re.search(r"backward|all_reduce", stacks[culprit])
    assert all(re.search(r"backward|all_reduce", stacks[rank]) for rank in waiting["ranks"])
    assert "Timed out waiting" in launchers(run)


def test_a_killed_rank_leaves_no_dump_and_the_launcher_names_its_signal(runs: Path) -> None:
    run, truth = make(runs, "killed", "pipeline")
    (culprit,) = truth["culprit_ranks"]
    assert culprit not in dumps(run)
    assert re.search(rf"rank +: {culprit} \(local_rank: \d\)\n +exitcode +: -9 ", launchers(run))


def test_a_sound_job_ends_well_with_dumps_of_its_middle(runs: Path) -> None:
    run, truth = make(runs, "sound", "grid")
    assert truth["culprit_ranks"] == []
    assert sorted(dumps(run)) == list(range(truth["ranks"]))
    # Agents that end one after the other warn of the store that is gone: `recvValue failed … DistNetworkError`.
    assert "ChildFailedError" not in launchers(run)
    assert "exitcode" not in launchers(run)


def test_the_evidence_names_no_place_of_this_machine(runs: Path) -> None:
    run, _ = make(runs, "evaluation", "ddp")
    for path in run.rglob("*"):
        if path.is_file():
            assert str(HANGBENCH.parents[1]).encode() not in path.read_bytes(), path
            assert sys.base_prefix.encode() not in path.read_bytes(), path


def test_ranks_that_are_forked_leave_what_torchrun_leaves(runs: Path) -> None:
    forked, _ = make(runs, "evaluation", "ddp")
    started, truth = make(runs / "real", "evaluation", "ddp", "--real")
    assert truth["launcher"] == "torchrun"

    def form(run: Path) -> set[str]:
        text = re.sub(
            r"_run_code \(<frozen runpy>:\d+\)\n", "", "".join(p.read_text() for p in run.glob("stacks/rank*"))
        )
        return {re.sub(r"0x\w+|\d+", "#", line) for line in (text + launchers(run)).splitlines()}

    # Who is first to time out, and whether it sent or received, is a matter of chance.
    assert len(form(forked) ^ form(started)) <= len(form(forked) & form(started)) / 4
