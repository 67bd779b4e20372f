"""Which rank is to blame for a collective that failed, of what the ranks told and what this host knows of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from busbw.torch.ranks import RankFacts


@dataclass(frozen=True)
class Record:
    """What a rank tells the others, again and again.

    Attributes:
        beat: grows as long as it lives.
        turns: how many operations of each group it has come to.
        how: how it ended: `raised` an exception, `failed` in a collective or `left`; empty while it works.
        what: in words.
        gone: places of ranks whose processes it saw gone, which ranks of other hosts cannot.
    """

    beat: int
    turns: dict[str, int] = field(default_factory=dict)
    how: str = ""
    what: str = ""
    gone: tuple[int, ...] = ()


@dataclass(frozen=True)
class Wait:
    """What a rank was waiting for when a collective failed.

    Attributes:
        group: the name of the process group.
        places: who took part.
        at_limit: whether the limit of time ran out; a connection that closes ends a wait before.
    """

    group: str
    places: Sequence[int]
    at_limit: bool


def certain(ranks: Sequence[RankFacts], records: Sequence[Record], gone: Sequence[int]) -> str | None:
    """Return what is sure: a rank that said how it ended, or whose process is seen to be gone or stopped."""
    raised, left = (_ended(records, how) for how in ("raised", "left"))
    if raised:
        return f"{_names(ranks, raised)} raised {clean(records[raised[0]].what)}. See that rank's own output"
    told = {place for record in records for place in record.gone}
    died = sorted(place for place in told.union(gone) if not (records and records[place].how))
    if died:
        host = ranks[died[0]].host
        return (
            f"{_names(ranks, died)} died without a word: its process is gone. See that rank's own output, and dmesg on "
            f"{clean(host)} for the out-of-memory killer"
        )
    stopped = [place for place, facts in enumerate(ranks) if facts.state() == "stopped"]
    if stopped:
        resume = f"kill -CONT {ranks[stopped[0]].pid}"
        return f"{_names(ranks, stopped)} is stopped, by SIGSTOP or a debugger. Let it go on ({resume}), and start anew"
    return f"{_names(ranks, left)} {clean(records[left[0]].what)}" if left else None


def likely(
    ranks: Sequence[RankFacts], before: Sequence[Record], now: Sequence[Record], own: int, wait: Wait | None
) -> str:
    """Return what silence tells, or who is behind; records are from before and after a time of grace."""
    if not now:
        return _store_is_lost(ranks)
    silent = [p for p, (old, new) in enumerate(zip(before, now)) if p != own and old.beat == new.beat and not new.how]
    if silent:
        why = "it died, hangs or was stopped"
        if wait is not None:
            why = "it hangs or was stopped" if wait.at_limit else "it died"
        return (
            f"{_names(ranks, silent)} does not answer: {why}, or its host was cut off. Look at that host, and at that "
            "rank's own output"
        )
    late = (
        [p for p in wait.places if now[p].turns.get(wait.group, 0) < now[own].turns.get(wait.group, 0)] if wait else []
    )
    if late:
        return (
            f"{_names(ranks, late)} answers, but takes no part: it computes, loads data or waits for something else. "
            f"py-spy dump --pid {ranks[late[0]].pid} shows where; if it is only slow, raise the limit of time"
        )
    return "all ranks answer. Look at the network between their hosts"


def clean(text: str) -> str:
    """Take out of a text of another rank's what a terminal would obey, and all but its first line."""
    line = next(iter(text.splitlines()), "")[:200]
    return "".join(letter if letter.isprintable() else "�" for letter in line)


def _ended(records: Sequence[Record], how: str) -> list[int]:
    return [place for place, record in enumerate(records) if record.how == how]


def _names(ranks: Sequence[RankFacts], places: Sequence[int]) -> str:
    named = ", ".join(str(ranks[place]) for place in places[:3])
    return named if len(places) <= 3 else f"{named} and {len(places) - 3} more"


def _store_is_lost(ranks: Sequence[RankFacts]) -> str:
    """Name who holds the store that does not answer: torchrun's agent, or rank 0 (torch/distributed/rendezvous.py)."""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        agent = f"torchrun's agent on {os.environ.get('MASTER_ADDR', 'the first host')}"
        return f"{agent}, which holds the job's store, does not answer. Look at that host"
    holder = next((str(facts) for facts in ranks if facts.rank == 0), "rank 0")
    return f"{holder} does not answer, and holds the job's store: it died, hangs, or its host was cut off"
