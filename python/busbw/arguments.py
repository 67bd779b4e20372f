"""Numbers on the command lines of the package: what makes no sense is refused, in words for who typed it."""

from __future__ import annotations

from argparse import ArgumentTypeError


def natural(text: str) -> int:
    """Read a whole number from 0 on."""
    if not text.isdecimal():
        raise ArgumentTypeError(f"{text} is not a whole number of 0 or more")
    return int(text)


def positive(text: str) -> int:
    """Read a whole number from 1 on."""
    if not text.isdecimal() or int(text) == 0:
        raise ArgumentTypeError(f"{text} is not a whole number of 1 or more")
    return int(text)


def above_zero(text: str) -> float:
    """Read a number above 0."""
    number = _number(text)
    if not 0 < number < float("inf"):
        raise ArgumentTypeError(f"{text} is not a number above 0")
    return number


def share(text: str) -> float:
    """Read a share above 0 and up to 1."""
    number = _number(text)
    if not 0 < number <= 1:
        raise ArgumentTypeError(f"{text} is not a share above 0 and up to 1")
    return number


def size(text: str) -> int:
    """Read a size in bytes such as 553M; K, M and G are binary."""
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    number, unit = (text[:-1], units[text[-1]]) if text[-1:] in units else (text, 1)
    return int(above_zero(number) * unit)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ArgumentTypeError(f"{text or 'nothing'} is not a number") from None
