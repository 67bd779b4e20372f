"""Makes stuck and slow jobs for real: python benches/hangbench (make hangbench)."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOM = "." * 400
"""Of a command line, so that ranks can show their own."""


def within_srv() -> None:
    """Start anew where Python and its packages lie under /srv, so that no path of this machine is in any evidence."""
    if os.geteuid() != 0:
        sys.exit("hangbench: network namespaces need root")
    spy = os.environ.get("PY_SPY") or shutil.which("py-spy", path=f"{Path(sys.prefix) / 'bin'}:{os.environ['PATH']}")
    if spy is None:
        sys.exit("hangbench: py-spy is missing; make setup installs it, or pip install py-spy")
    base, packages = (
        Path(sys.base_prefix),
        Path(sys.prefix) / "lib" / f"python3.{sys.version_info[1]}" / "site-packages",
    )
    own = f"/srv/python/lib/{packages.parent.name}/site-packages"
    script = (
        "mount --make-rprivate / && mount -t tmpfs none /srv && mkdir /srv/python && "
        'mount --rbind "$0" /srv/python && mount --rbind "$1" "$2" && shift 2 && exec "$@"'
    )
    os.environ["HANGBENCH_WITHIN"] = "1"
    os.environ["PY_SPY"] = spy
    python = f"/srv/python/bin/python3.{sys.version_info[1]}"
    command = [python, "-u", str(HERE / "__main__.py"), *sys.argv[1:], "--room", ROOM]
    os.execvp("unshare", ["unshare", "--mount", "sh", "-c", script, str(base), str(packages), own, *command])


def parse() -> argparse.Namespace:
    """Read the command line."""
    import plan

    parser = argparse.ArgumentParser(prog="hangbench", description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="where runs go, a folder each")
    parser.add_argument("--seeds", default="1-5", help="such as 2,4 or 1-5 (%(default)s)")
    parser.add_argument("--faults", default=",".join(plan.CLASS), help="of %(default)s")
    parser.add_argument("--shapes", default=",".join(plan.SHAPES), help="of %(default)s")
    parser.add_argument("--runs", type=int, default=0, help="no more than so many")
    parser.add_argument("--jobs", type=int, default=3, help="runs at a time (%(default)s)")
    parser.add_argument("--labs", default="11,12,13", help="numbers of labs that are free (%(default)s)")
    parser.add_argument("--real", action="store_true", help="start Python anew for each rank, as torchrun does")
    parser.add_argument("--again", action="store_true", help="make runs anew that are there")
    parser.add_argument("--room", help=argparse.SUPPRESS)
    return parser.parse_args()


def numbers(text: str) -> list[int]:
    """`1-3,7` is 1, 2, 3 and 7."""
    parts = (part.partition("-") for part in text.split(","))
    return [number for first, _, last in parts for number in range(int(first), int(last or first) + 1)]


def make_all(given: argparse.Namespace) -> int:
    """Make the runs that are not there yet, several at a time; return how many failed."""
    import plan
    import run
    import torch

    # A dump's stacks are named with its help, and it takes seconds to import.
    import torch._inductor.standalone_compile
    import torch.distributed.run
    import torch.nn.parallel

    torch.set_num_threads(1)
    todo = plan.all_runs(numbers(given.seeds), given.shapes.split(","), given.faults.split(","))
    if given.runs:
        todo = todo[: given.runs]
    todo = [one for one in todo if given.again or not (given.out / one.name / "truth.json").exists()]
    free = numbers(given.labs)[: given.jobs]
    failed = 0
    busy: dict[int, tuple[int, str, float]] = {}
    while todo or busy:
        while todo and free:
            one, lab = todo.pop(0), free.pop(0)
            pid = os.fork()
            if pid == 0:
                code = 1
                try:
                    run.Run(one, given.out.resolve() / one.name, lab, given.real).make()
                    code = 0
                except BaseException:
                    import traceback

                    traceback.print_exc()
                finally:
                    os._exit(code)
            busy[pid] = (lab, one.name, time.monotonic())
        pid, status = os.wait()
        lab, name, begin = busy.pop(pid)
        free.append(lab)
        failed += status != 0
        print(f"{name}: {'made' if status == 0 else 'FAILED'} in {time.monotonic() - begin:.0f} s, {len(todo)} to go")
    return failed


def main() -> None:
    """Make them."""
    if "HANGBENCH_WITHIN" not in os.environ:
        within_srv()
    if make_all(parse()):
        sys.exit("hangbench: some runs failed; the same command makes them again")


if __name__ == "__main__":
    main()
