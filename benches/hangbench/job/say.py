"""What the job prints."""

from __future__ import annotations

import logging
import os
import sys
import time

_log = logging.getLogger("train")


def _emit(settings: dict, level: int, text: str) -> None:
    if settings["logging"]:
        if not _log.handlers:
            handler = logging.StreamHandler(sys.stderr if settings["to_stderr"] else sys.stdout)
            handler.setFormatter(logging.Formatter(settings["log_format"]))
            _log.addHandler(handler)
            _log.setLevel(logging.INFO)
            _log.propagate = False
        _log.log(level, text)
    else:
        print(text, file=sys.stderr if settings["to_stderr"] else sys.stdout, flush=True)


def _text(settings: dict, what: str, values: dict) -> str:
    values.setdefault("rank", os.environ["RANK"])
    return settings["texts"][what].format(time=time.strftime("%H:%M:%S"), **values)


def say(settings: dict, what: str, **values: object) -> None:
    """Print a line, on the ranks that print."""
    if int(os.environ["RANK"]) in settings["print_ranks"]:
        _emit(settings, logging.INFO, _text(settings, what, values))


def warn(settings: dict, what: str, **values: object) -> None:
    """Print a warning, on any rank."""
    _emit(settings, logging.WARNING, _text(settings, what, values))
