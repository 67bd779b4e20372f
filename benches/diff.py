"""Compares the newest measurement of each figure in benches/results with the one before it on the same machine.

    python3 benches/diff.py

It names each figure that became worse by more than the spread: the best of the new rounds is worse than the worst of
the old ones. A figure that was measured once has no spread: it is named where it is worse by more than 5%. The exit
status is 1 where a figure is named.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from table import RESULTS, Figure, Found, Measured, Origin, history

OF_ONE_MEASUREMENT = 0.05
"""Two measurements of the same thing may differ by so much, where nothing says by how much they do."""


def pairs(folder: Path) -> Iterator[tuple[Found, Found]]:
    """The newest measurement of each figure, after the one before it on the same machine."""
    for measurements in history(folder).values():
        (figure, origin) = measurements[-1]
        earlier = [one for one in measurements[:-1] if one[1].machine == origin.machine]
        if earlier and origin.machine != "not recorded":
            yield earlier[-1], (figure, origin)


def is_worse(before: Measured, after: Measured) -> bool:
    """Whether a figure became worse by more than the spread."""
    if after.more_is_better:
        worst, best = before.low, after.high
        return best < worst * (1 - margin(before, after))
    worst, best = before.high, after.low
    return best > worst * (1 + margin(before, after))


def margin(before: Measured, after: Measured) -> float:
    """What a difference has to exceed beyond the spread, as a share."""
    spreads = any(one.low < one.high for one in (before, after))
    return 0.0 if spreads else OF_ONE_MEASUREMENT


def named(before: tuple[Figure, Origin], after: tuple[Figure, Origin]) -> str:
    """A regression, in a line."""
    (figure, origin), (was, of) = after, before
    return (
        f"{figure.benchmark}: {figure.what}: {was.reached} -> {figure.reached}"
        f" ({of.date[:10]} {of.commit} -> {origin.date[:10]} {origin.commit}; {origin.machine})"
    )


def regressions(folder: Path) -> tuple[list[str], int]:
    """The regressions of a folder of results, and how many figures were compared."""
    found, compared = [], 0
    for before, after in pairs(folder):
        was, now = before[0].measured, after[0].measured
        if was and now:
            compared += 1
            found += [named(before, after)] if is_worse(was, now) else []
    return found, compared


def main() -> int:
    """Print the regressions."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    found, compared = regressions(RESULTS)
    print(f"{len(found)} of {compared} figures are worse than before by more than the spread.")
    print("".join(f"  {line}\n" for line in found), end="")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
