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


def share(text: str) -> float:
    """Read a share above 0 and up to 1."""
    number = _number(text)
    if not 0 < number <= 1:
        raise ArgumentTypeError(f"{text} is not a share above 0 and up to 1")
    return number


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ArgumentTypeError(f"{text or 'nothing'} is not a number") from None
