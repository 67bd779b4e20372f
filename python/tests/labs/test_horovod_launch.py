"""Who a process is in its job, under real launchers: mpirun, torchrun and srun."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from busbw.horovod.launch import LaunchError, Place, first_host, meet


@pytest.mark.parametrize(
    ("environment", "place"),
    [
        ({}, Place(0, 1, None, True)),
        ({"RANK": "3", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4"}, Place(3, 8, "torchrun", False)),
        (
            {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"},
            Place(1, 2, "Open MPI's mpirun", True),
        ),
        ({"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALNRANKS": "1"}, Place(1, 2, "MPICH's mpirun", False)),
        (
            {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NUM_NODES": "1"},
            Place(1, 2, "srun", True),
        ),
        ({"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NUM_NODES": "2"}, Place(1, 2, "srun", False)),
        # srun --mpi=pmi2, a batch script, and hydra's ranks in a step of Slurm's.
        (
            {
                "SLURM_PROCID": "1",
                "SLURM_STEP_NUM_TASKS": "2",
                "SLURM_STEP_NUM_NODES": "2",
                "PMI_RANK": "1",
                "PMI_SIZE": "2",
                "PMI_JOBID": "7.0",
            },
            Place(1, 2, "srun", False),
        ),
        ({"SLURM_PROCID": "0", "SLURM_JOB_ID": "7", "SLURM_NTASKS": "4"}, Place(0, 1, None, True)),
        (
            {
                "SLURM_PROCID": "0",
                "SLURM_STEP_NUM_TASKS": "1",
                "SLURM_STEP_NUM_NODES": "1",
                "PMI_RANK": "1",
                "PMI_SIZE": "2",
                "MPI_LOCALNRANKS": "2",
            },
            Place(1, 2, "MPICH's mpirun", True),
        ),
    ],
)
def test_launchers(environment: dict[str, str], place: Place) -> None:
    assert Place.from_environment(environment) == place


def test_launchers_that_say_too_little() -> None:
    with pytest.raises(LaunchError, match="OMPI_COMM_WORLD_SIZE is None"):
        Place.from_environment({"OMPI_COMM_WORLD_RANK": "1"})
    with pytest.raises(LaunchError, match="-x MASTER_ADDR="):
        meet(Place(1, 4, "Open MPI's mpirun", False), timedelta(seconds=1), {})


@pytest.fixture
def two_hosts(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Two hosts of the net lab; the environment of those who start jobs on them."""
    if os.getuid() != 0:
        pytest.skip("the hosts of the lab need root")
    lab = str(Path(__file__).parents[3] / "tests/lab/netlab")
    variables = {**environment(), "NETLAB": "86"}
    subprocess.run([lab, "up", "2"], env=variables, check=True, timeout=150, capture_output=True)
    # MPICH's mpirun has flags of ssh before the host.
    shell = tmp_path / "rsh"
    shell.write_text(f'#!/bin/sh\nwhile [ "${{1#-}}" != "$1" ]; do shift; done\nexec {lab} rsh "$@"\n')
    shell.chmod(0o755)
    agent = {"OMPI_MCA_plm_rsh_agent": str(shell), "HYDRA_LAUNCHER_EXEC": str(shell), "HYDRA_LAUNCHER": "ssh"}
    # Open MPI 4.1's daemons of one machine write their picture of it to one file, and at times crash on it.
    agent["OMPI_MCA_rtc"] = "^hwloc"
    try:
        yield {**variables, **agent, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    finally:
        subprocess.run([lab, "down"], env=variables, check=True, timeout=150)


@pytest.mark.parametrize("mpirun", ["mpirun.openmpi", "mpirun.mpich"])
def test_mpirun_on_two_hosts_without_an_address(mpirun: str, two_hosts: dict[str, str]) -> None:
    """The command of the fifth field report, with the import changed: nothing says where rank 0 is but the launcher."""
    if shutil.which(mpirun) is None:
        pytest.skip(f"{mpirun} is missing; make setup installs it")
    hosts = ["-H", "h1:2,h2:2"] if mpirun == "mpirun.openmpi" else ["-hosts", "h1:2,h2:2"]
    lab = [str(Path(__file__).parents[3] / "tests/lab/netlab"), "exec", "1"]
    light = {"LIGHT_2D_ALLREDUCE": "1"}
    hand_on = ["-x", "LIGHT_2D_ALLREDUCE", "-x", "PYTHONPATH"] if mpirun == "mpirun.openmpi" else []
    ran = subprocess.run(
        [*lab, mpirun, "-np", "4", *hosts, *hand_on, sys.executable, "-c", _SCRIPT],
        env={**two_hosts, **light, "HOROVOD_GLOO_TIMEOUT_SECONDS": "100"},
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("sum 10 of 4") == 4, ran.stdout
    effect = "busbw.horovod: two-level all-reduce on 2 x 2 ranks, by LIGHT_2D_ALLREDUCE=1"
    assert ran.stderr.count(effect) == 1, ran.stderr


@pytest.mark.parametrize(
    ("hosts", "first"),
    [("node7", "node7"), ("node[07-09,12],b", "node07"), ("a,b", "a"), ("r[1,2]-x", "r1-x"), ("gpu-3a[3]", "gpu-3a3")],
)
def test_first_host_of_a_list(hosts: str, first: str) -> None:
    assert first_host(hosts) == first


_SCRIPT = """
import torch, busbw.horovod as hvd
hvd.init()
total = int(hvd.allreduce(torch.tensor([hvd.rank() + 1]), op=hvd.Sum))
# In one piece: without buffers, a piece is a write, and both ranks write to one pipe.
print(f"sum {total} of {hvd.size()}", flush=True)
"""


def environment() -> dict[str, str]:
    """This process's environment without any launcher's variables."""
    prefixes = ("OMPI_", "PMI", "SLURM_", "RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "LIGHT_")
    own = {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}
    return {**own, "PYTHONPATH": os.pathsep.join(sys.path)}


def open_mpi() -> list[str]:
    """The command line of Open MPI's mpirun with two ranks."""
    if shutil.which("mpirun") is None:
        pytest.skip("mpirun is missing; make setup installs it")
    if "Open MPI" not in subprocess.run(["mpirun", "--version"], capture_output=True, text=True).stdout:
        pytest.skip("mpirun is not Open MPI's")
    return ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2"]


def torchrun() -> list[str]:
    """The command line of torchrun with two ranks."""
    agent = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    return [*agent, "--no-python"]


def behind_a_script() -> list[str]:
    """The same of ranks that a script of their own starts, and waits for."""
    return [*open_mpi(), "sh", "-c", '"$@"; exit $?', "wrap"]


@pytest.mark.parametrize("launcher", [open_mpi, torchrun, behind_a_script])
def test_real_launchers(launcher: Callable[[], list[str]]) -> None:
    ran = subprocess.run(
        [*launcher(), sys.executable, "-c", _SCRIPT],
        env={**environment(), "HOROVOD_GLOO_TIMEOUT_SECONDS": "100"},
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("sum 3 of 2") == 2


@pytest.fixture
def slurm() -> Iterator[dict[str, str]]:
    """A Slurm cluster of two nodes; the environment of those who use it."""
    if os.getuid() != 0 or shutil.which("slurmctld", path=f"{os.environ['PATH']}:/usr/sbin") is None:
        pytest.skip("needs root, and Slurm (make setup installs it)")
    lab = [str(Path(__file__).parents[3] / "tests/lab/slurmlab")]
    variables = {**environment(), "SLURMLAB": "87"}
    subprocess.run([*lab, "up", "2"], env=variables, check=True, timeout=150, capture_output=True)
    try:
        conf = subprocess.run([*lab, "conf"], env=variables, check=True, capture_output=True, text=True).stdout.strip()
        yield {**variables, "SLURM_CONF": conf}
    finally:
        subprocess.run([*lab, "down"], env=variables, check=True, timeout=150)


@pytest.mark.parametrize("mpi", ["none", "pmi2"])
def test_srun_on_two_nodes(mpi: str, slurm: dict[str, str]) -> None:
    """The lab's node names are in slurm.conf only, so that rank 0's address comes from there."""
    command = ["srun", f"--mpi={mpi}", "-N2", "-n2", sys.executable, "-c", _SCRIPT]
    ran = subprocess.run(command, env=slurm, capture_output=True, text=True, timeout=250)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("sum 3 of 2") == 2


def test_a_node_without_an_address() -> None:
    step = {"SLURM_STEP_NODELIST": "nowhere.invalid", "SLURM_JOB_ID": "1", "SLURM_STEP_ID": "0"}
    with pytest.raises(LaunchError, match=r"nowhere\.invalid, where rank 0 is, has no address here"):
        meet(Place(1, 2, "srun", False), timedelta(seconds=1), step)
