"""Whether the ranks of a job are well, and which of them is to blame when a collective fails.

Gloo names a lost peer by its address at most, and tells a rank that waits for a third one nothing. So every rank tells
the others once a second that it lives, how far it is and how it ended, through the store of the process group.
PyTorch's monitored_barrier names missing ranks too (torch/csrc/distributed/c10d/ProcessGroupGloo.cpp), but only
where all ranks call it.
"""

from __future__ import annotations

import atexit
import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from datetime import timedelta

import torch.distributed as dist
from torch.distributed import PrefixStore, Store  # type: ignore[attr-defined]

from busbw.torch.blame import Record, Wait, certain, clean, likely
from busbw.torch.layout import HostLayout, timeout_of
from busbw.torch.ranks import exchange

BEAT_S = 1.0
_ASKING_S = 0.2
GRACE_S = 3.5
"""How long ranks are listened to before the silent ones are named: three beats, and a bit for a loaded machine."""
_LAST_WORDS_S = 2.0

_FIRST = "first failure"


class CommunicationError(RuntimeError):
    """A collective failed: a rank has died, is stuck, or asks for something else."""


class Watch:
    """What this rank tells the others of itself, and knows of them.

    Args:
        group: the ranks that work together. Collective: all of them make their watch at once.

    Attributes:
        ranks: who they are, by their place in the group.
        failure: the first error, after which no operation can work.
    """

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.failure: CommunicationError | None = None
        self._own, self._size = group.rank(), group.size()
        self._limit = timeout_of(group) or timedelta.max
        self._turns: Counter[str] = Counter()
        self._listeners: list[Callable[[CommunicationError], None]] = []
        self._beat, self._how, self._what = 0, "", ""
        self._gone: tuple[int, ...] = ()
        self._records: list[Record] = []
        self._refused: dict[str, int] = {}
        self._noticed = False
        self._asks, self._wake, self._over, self._told = (threading.Event() for _ in range(4))
        self._lock = threading.Lock()
        self._store = _own_store(group)
        self._tell()
        self.ranks = exchange(group)
        if self._size == 1:
            self._told.set()
            return
        # A daemon: while the host of the store hangs, its calls do not return.
        threading.Thread(target=self._run, name="busbw-watch", daemon=True).start()
        self._before, sys.excepthook = sys.excepthook, self._raised
        atexit.register(self.close)

    def listen(self, listener: Callable[[CommunicationError], None]) -> None:
        """Hand the first error to `listener`, in whatever thread finds it."""
        self._listeners.append(listener)

    def layout(self, group: dist.ProcessGroup, intra_size: int | None = None) -> HostLayout:
        """Return which ranks of a group share a host, as `discover` does."""
        host_of = {facts.rank: facts.host_id for facts in self.ranks}
        return HostLayout.of([host_of[rank] for rank in dist.get_process_group_ranks(group)], intra_size)

    def name(self, rank: int) -> str:
        """Name a rank of the job with its host and process."""
        return next((str(facts) for facts in self.ranks if facts.rank == rank), f"rank {rank}")

    def turn(self, group: dist.ProcessGroup) -> int:
        """Count an operation of a group; return its number, which is the same on all its ranks."""
        self._turns[group.group_name] += 1
        return self._turns[group.group_name]

    def all_refuse(self, group: dist.ProcessGroup, turn: int) -> bool:
        """Say that this rank refused an operation before it sent anything; return whether all ranks of the group do."""
        key, deadline = f"refused {group.group_name} {turn}", time.monotonic() + GRACE_S
        self._refused[key] = 0
        while self._refused[key] < group.size() and time.monotonic() < deadline and self.failure is None:
            self._wake.set()
            time.sleep(_ASKING_S / 10)
        return self._refused.pop(key) == group.size()

    def blame(self, doing: str, error: BaseException, group: dist.ProcessGroup, waited_s: float) -> CommunicationError:
        """Find out which rank is to blame for an error of the network, and tell all; return what to raise.

        Args:
            doing: what failed.
            error: the first sign of it.
            group: who took part.
            waited_s: for how long this rank waited.
        """
        members = dist.get_process_group_ranks(group)
        places = [place for place, facts in enumerate(self.ranks) if facts.rank in members]
        wait = Wait(group.group_name, places, waited_s > 0.9 * self._limit.total_seconds())
        return self._conclude(f"{doing} failed after {waited_s:.1f} s", error, wait)

    def give_up(self, doing: str, error: Exception) -> CommunicationError:
        """Tell the others of an error of this rank's own, for which they would wait in vain; return what to raise."""
        with self._lock:
            if self.failure is not None:
                return again(self.failure)
            self._how, self._what = "raised", f"{type(error).__name__}: {error}"
            self.failure = CommunicationError(f"busbw: {doing} failed on this rank alone: {self._what}")
            self.failure.__cause__ = error
        return self._spread(self.failure)

    def close(self) -> None:
        """Say that this rank takes part no longer, and end the thread."""
        self._end("left", "takes no part any more: it called close() or shutdown(), or its script has ended")
        atexit.unregister(self.close)
        if self._size > 1 and sys.excepthook == self._raised:
            sys.excepthook = self._before

    def _conclude(self, what: str, error: BaseException | str, wait: Wait | None) -> CommunicationError:
        with self._lock:
            if self.failure is not None:
                return again(self.failure)
            sign = clean(str(error)) or type(error).__name__
            self._how, self._what = self._how or "failed", self._what or sign
            found = self._find(wait)
            self.failure = CommunicationError(f"busbw: {what}: {found}. [{sign}]")
            self.failure.__cause__ = error if isinstance(error, BaseException) else None
        return self._spread(self.failure)

    def _spread(self, failure: CommunicationError) -> CommunicationError:
        self._over.set()
        self._wake.set()
        for listener in self._listeners:
            listener(failure)
        return failure

    def _find(self, wait: Wait | None) -> str:
        """Listen to the ranks until one is found to blame, or for the time of grace."""
        before: list[Record] = []
        deadline = time.monotonic() + GRACE_S
        self._asks.set()
        while True:
            # In this order: a rank that raises says so before its process is gone.
            gone = [place for place, facts in enumerate(self.ranks) if facts.state() == "gone"]
            self._wake.set()
            time.sleep(_ASKING_S)
            now = self._records
            self._gone = tuple(gone)
            found = certain(self.ranks, now, gone)
            if found is not None:
                return found
            if time.monotonic() > deadline:
                return likely(self.ranks, before, now, self._own, wait)
            before = before or now

    def _run(self) -> None:
        """Tell and listen until the end. All calls of the store are made here, since any may take for ever."""
        try:
            while not self._told.is_set():
                last = self._over.is_set()
                self._tell()
                self._listen()
                if last:
                    break
                self._wake.wait(BEAT_S)
                self._wake.clear()
        except Exception:  # whatever becomes of the store: that it does not answer says enough
            self._records = []
        self._told.set()

    def _tell(self) -> None:
        self._beat += 1
        record = Record(self._beat, dict(self._turns), self._how, self._what, self._gone)
        self._store.set(str(self._own), json.dumps(asdict(record)))
        for key, count in list(self._refused.items()):
            self._refused[key] = self._store.add(key, 0 if count else 1)
        if record.how in ("raised", "failed"):
            self._store.compare_set(_FIRST, "", f"{self.ranks[self._own]}: {record.what}")

    def _listen(self) -> None:
        if self._asks.is_set():
            told = self._store.multi_get([str(place) for place in range(self._size)])
            self._records = [Record(**json.loads(text)) for text in told]
        if not self._noticed and not self._how and self._store.check([_FIRST]):
            self._noticed = True
            first = self._store.get(_FIRST).decode(errors="replace")
            threading.Thread(target=self._heed, args=(first,), name="busbw-blame", daemon=True).start()

    def _heed(self, first: str) -> None:
        """Take over that another rank has failed: this one may wait for it in vain, or for a third."""
        self._conclude("another rank failed", first, None)

    def _raised(self, kind: type[BaseException], error: BaseException, trace: object) -> None:
        """Tell the others of the exception that ends this rank; what `sys.excepthook` is."""
        self._end("raised", f"{kind.__name__}: {error}")
        self._before(kind, error, trace)  # type: ignore[arg-type]

    def _end(self, how: str, what: str) -> None:
        """Tell the others how this rank ended, unless they know."""
        if not self._how:
            self._how, self._what = how, what
        if how == "left" and self.ranks[self._own].rank == 0:
            self._outlast_the_others()
        self._over.set()
        self._wake.set()
        self._told.wait(_LAST_WORDS_S)

    def _outlast_the_others(self) -> None:
        """Stay until all have left: with rank 0 the store goes, of which the others' PyTorch would complain."""
        deadline = time.monotonic() + _LAST_WORDS_S
        self._asks.set()
        while time.monotonic() < deadline and self.failure is None and not self._told.is_set():
            if self._records and all(record.how for record in self._records):
                return
            self._wake.set()
            time.sleep(_ASKING_S / 10)


def again(first: CommunicationError) -> CommunicationError:
    """Return what an operation after the first failure fails with."""
    error = CommunicationError(f"{first} (an operation before this one failed so, and nothing can be sent any more)")
    error.__cause__ = first
    return error


def _own_store(group: dist.ProcessGroup) -> Store:
    """Return the job's store, over a connection of its own: others' waits would hold up ours."""
    store = dist.distributed_c10d._get_default_store()
    name = f"busbw/watch/{group.group_name}"
    # The same number on all ranks, which make their watches of a group together.
    made = store.add(f"{name}/{group.rank()}", 1)
    return PrefixStore(f"{name}/{made}", store.clone() if hasattr(store, "clone") else store)
