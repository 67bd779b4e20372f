"""The ranks of the benchmark: those of a launcher's job, or started here."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
from pathlib import Path

from torch import multiprocessing
from torch.distributed import FileStore, Store  # type: ignore[attr-defined]

from busbw.horovod.launch import Place
from busbw.synthetic.plot import svg
from busbw.synthetic.result import Table
from busbw.synthetic.run import TIMEOUT, Rank, run
from busbw.synthetic.settings import UsageError, settings_of
from busbw.torch.layout import HostLayout, host_id

BAD_USAGE = 2
"""The exit status where arguments do not fit, or a file cannot be written."""


def start(given: argparse.Namespace) -> None:
    """Start ranks here, and end them all when one fails."""
    check_outputs(given)
    # Ranks share the cores: more threads than cores only wait for each other.
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // given.np)))
    with tempfile.TemporaryDirectory(prefix="busbw-") as directory:
        try:
            multiprocessing.start_processes(  # type: ignore[attr-defined, no-untyped-call]
                _started, (given, directory), given.np, start_method="spawn"
            )
        except multiprocessing.ProcessExitedException as error:
            if error.exit_code != BAD_USAGE:
                raise
            sys.exit(BAD_USAGE)  # and a rank has said why


def _started(rank: int, given: argparse.Namespace, directory: str) -> None:
    place = Place(rank, given.np, "busbw", on_one_host=True)
    try:
        measure(given, place, FileStore(f"{directory}/meeting", given.np))
    except (ValueError, OSError) as error:
        # The rank that fails first speaks: the others are ended then, whatever they were about to say.
        with contextlib.suppress(FileExistsError):
            (Path(directory) / "said").touch(exist_ok=False)
            print(f"busbw.synthetic: {error}", file=sys.stderr, flush=True)
        sys.exit(BAD_USAGE)


def measure(given: argparse.Namespace, place: Place, store: Store) -> None:
    """Be one rank: measure, and on rank 0 print. Every rank calls it."""
    if place.rank == 0:
        check_outputs(given)
    layout = _layout(given, place, store)
    own = next(ranks for ranks in layout.hosts if place.rank in ranks)
    settings = settings_of(given, place.size, len(own))
    table = run(settings, Rank(place.rank, place.size, own.index(place.rank)), store)
    if place.rank == 0:
        publish(given, table)


def _layout(given: argparse.Namespace, place: Place, store: Store) -> HostLayout:
    """Find out which ranks share a host, before there is a process group."""
    if given.intra_size is not None:
        return HostLayout.from_blocks(place.size, given.intra_size)
    store.set(f"host of {place.rank}", host_id())
    keys = [f"host of {rank}" for rank in range(place.size)]
    store.wait(keys, TIMEOUT)
    return HostLayout.from_names([store.get(key).decode() for key in keys])


def check_outputs(given: argparse.Namespace) -> None:
    """Refuse, before anything is measured, files that cannot be written afterwards.

    Raises:
        UsageError: a file's folder is not there.
    """
    for file in (given.json, given.plot):
        if file is not None and not file.parent.is_dir():
            raise UsageError(f"{file}: there is no folder {file.parent}; make it, or choose another place")


def publish(given: argparse.Namespace, table: Table) -> None:
    """Print the table, and write what else was asked for."""
    print(f"\n{table}")
    outputs: list[tuple[Path | None, str]] = [(given.json, table.to_json()), (given.plot, svg(table))]
    for file, text in outputs:
        if file is not None:
            file.write_text(text)
