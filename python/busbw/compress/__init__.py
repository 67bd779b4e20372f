"""Gradient compression: which entries to send, how they travel, and what happens to the rest.

`select` picks the entries of largest magnitude (`cpu`, and `gpu` in Triton), `message` lays them out
as bytes, `feedback` keeps what was not sent for later steps. Nothing here communicates.
"""

import busbw._pytorch  # noqa: F401 (first: its error says what to do)
from busbw.compress.feedback import ErrorFeedback, Schedule
from busbw.compress.message import Message
from busbw.compress.select import Method, select

__all__ = ["ErrorFeedback", "Message", "Method", "Schedule", "select"]
