"""The command `python -m busbw.synthetic`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from busbw.horovod.launch import LaunchError, Place, meet
from busbw.synthetic.job import BAD_USAGE, measure, publish, start
from busbw.synthetic.result import merged
from busbw.synthetic.run import TIMEOUT
from busbw.synthetic.settings import parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark, or print tables of earlier runs. Returns the exit status: 2 for bad usage."""
    given = parser().parse_args(arguments)
    try:
        if given.table:
            publish(given, merged(given.table))
        elif given.np:
            start(given)
        else:
            place = Place.from_environment()
            measure(given, place, meet(place, TIMEOUT))
    except (LaunchError, ValueError, OSError) as error:
        print(f"busbw.synthetic: {error}", file=sys.stderr)
        return BAD_USAGE
    return 0


if __name__ == "__main__":
    sys.exit(main())
