"""Stages that work on bucket after bucket, so that the backward pass never waits and stages overlap.

On a CPU each stage is a thread: while one bucket travels between hosts, the next is reduced within its
host. On a GPU all stages of a device share one side stream, in which collectives are only enqueued:
NCCL's groups then start in the same order on every rank, as they must, and computation goes on beside.
"""

from __future__ import annotations

import atexit
import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol, Union

import torch
import torch.distributed as dist

from busbw.torch.agreement import Absence, DisagreementError, Part, Wait, agree, wait_simply
from busbw.torch.blame import clean
from busbw.torch.watch import CommunicationError, Watch, again

_SLICE = timedelta(seconds=0.5)
"""How often a wait looks whether another rank's failure has ended it."""


@dataclass(frozen=True)
class Collective:
    """A step in which all ranks of a group take part.

    Attributes:
        group: who.
        work: takes the step before's result and a way to wait for PyTorch's `Work`; returns the next one's argument.
        absence: how ranks that have joined take part.
        joins: whether this rank takes part in whatever the others do, until all join.
    """

    group: dist.ProcessGroup
    work: Callable[[Any, Wait], Any]
    absence: Absence | None = None
    joins: bool = False


Step = Union[Callable[[Any], Any], Collective]
"""What a stage does to a bucket: takes the step before's result, returns the next one's argument."""


class Pending:
    """An operation that was handed in.

    Attributes:
        future: the last step's result to come. Its errors reach C++ (DDP's reducer), as RuntimeErrors.
    """

    def __init__(self, future: torch.futures.Future[Any], job: _Job | None = None) -> None:
        self.future, self._job = future, job

    def done(self) -> bool:
        """Return whether `wait` would return at once."""
        return self.future.done()

    def wait(self) -> Any:  # noqa: ANN401 (what the last step returned)
        """Return the result, or raise the error as it was."""
        if self._job is not None:
            self._job.done.wait()
            if self._job.failure is not None:
                raise self._job.failure
        return self.future.wait()


class Pipeline(Protocol):
    """What both pipelines do."""

    def submit(self, value: object, steps: Mapping[str, Step], about: str) -> Pending:
        """Send `value` through `steps`, keyed by stage; return at once. `about` says what it is, alike on all ranks."""

    def seconds(self) -> dict[str, float]:
        """Return the time that each stage has worked so far."""

    @property
    def is_idle(self) -> bool:
        """Whether everything submitted has been finished."""

    def close(self) -> None:
        """End the stages. What was submitted before is finished."""


def pipeline_for(device: torch.device, stages: Iterable[str], watch: Watch) -> Pipeline:
    """Return the pipeline that suits tensors on `device`."""
    if device.type == "cuda":
        return StreamPipeline(device, stages, watch)
    return ThreadPipeline(stages, watch)


@dataclass(eq=False)
class _Job:
    value: Any
    steps: Mapping[str, Step]
    about: str
    done: torch.futures.Future[None]
    failure: Exception | None = None

    def result(self, _: object = None) -> Any:  # noqa: ANN401 (what the last step returned)
        # Raised, and not by set_exception: only so does C++ see an error.
        if self.failure is not None:
            raise self.failure
        return self.value


class _Broken(Exception):  # noqa: N818 (never seen outside)
    """The network failed under a collective, and not this rank's own part in it."""


class ThreadPipeline:
    """A thread per stage, each with a queue; a bucket passes through all of them in order."""

    def __init__(self, stages: Iterable[str], watch: Watch) -> None:
        self._stages = tuple(stages)
        self._watch = watch
        self._queues: list[queue.SimpleQueue[_Job | None]] = [queue.SimpleQueue() for _ in self._stages]
        self._seconds = dict.fromkeys(self._stages, 0.0)
        self._open: list[_Job] = []
        self._failure: CommunicationError | None = None
        self._lock = threading.Lock()
        self._threads = [
            # A daemon, so that a rank whose peer has died can leave while a collective still waits.
            threading.Thread(target=self._run, args=(place,), name=f"busbw-{stage}", daemon=True)
            for place, stage in enumerate(self._stages)
        ]
        for thread in self._threads:
            thread.start()
        watch.listen(self._break)
        atexit.register(self._leave_torch)

    def submit(self, value: object, steps: Mapping[str, Step], about: str) -> Pending:
        """See `Pipeline.submit`. What one rank cannot do fails on all; once the network has failed, everything does."""
        job = _Job(value, steps, about, torch.futures.Future())
        pending = Pending(job.done.then(job.result), job)
        with self._lock:
            failure = self._failure or self._watch.failure
            if failure is None:
                self._open.append(job)
                self._queues[0].put(job)
        if failure is not None:
            job.failure = again(failure)
            job.done.set_result(None)
        return pending

    def seconds(self) -> dict[str, float]:
        """See `Pipeline.seconds`: time on the clock, waiting for peers included."""
        return dict(self._seconds)

    @property
    def is_idle(self) -> bool:
        """See `Pipeline.is_idle`; never after a failure, since the other ranks' part does not come."""
        return not self._open and self._failure is None

    def close(self) -> None:
        """See `Pipeline.close`."""
        self._queues[0].put(None)
        if self._failure is None:
            for thread in self._threads:
                thread.join()
        self._leave_torch()
        atexit.unregister(self._leave_torch)

    def _leave_torch(self) -> None:
        """Let the threads come back from PyTorch's C++: one that does so while Python ends aborts the process."""
        if self.is_idle:
            return
        self._failure = self._failure or CommunicationError("busbw: the script has ended")
        self._queues[0].put(None)
        deadline = time.monotonic() + 2 * _SLICE.total_seconds()
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _run(self, place: int) -> None:
        stage, following = self._stages[place], self._queues[place + 1 : place + 2]
        while (job := self._queues[place].get()) is not None and self._failure is None:
            self._work(stage, job)
            if following:
                following[0].put(job)
            else:
                self._finish(job)
        for last in following:
            last.put(None)

    def _work(self, stage: str, job: _Job) -> None:
        step = job.steps.get(stage)
        if step is None or self._failure is not None:
            return
        begin = time.perf_counter()
        try:
            if isinstance(step, Collective):
                self._together(step, job)
            elif job.failure is None:
                job.value = step(job.value)
        except Exception as error:  # whatever it is, the trainer's thread is to see it
            job.failure = job.failure or error
        self._seconds[stage] += time.perf_counter() - begin

    def _together(self, step: Collective, job: _Job) -> None:
        while self._stands_in(step, job):
            pass

    def _stands_in(self, step: Collective, job: _Job) -> bool:
        """Do a step with the other ranks; where one cannot, none does. Return whether ours is yet to come."""
        turn, begin = self._watch.turn(step.group), time.monotonic()
        reason = None if job.failure is None else f"{type(job.failure).__name__}: {job.failure}"
        try:
            theirs = agree(step.group, Part(job.about, reason, step.absence, step.joins), self._watch, self._wait)
            if theirs is None:
                job.value = step.work(job.value, self._wait)
            else:
                theirs.stand_in(step.group, self._wait)
            return theirs is not None
        except DisagreementError as disagreement:
            if step.joins:
                return True
            job.failure = job.failure or disagreement
        except _Broken as broken:
            waited_s = time.monotonic() - begin
            self._break(self._watch.blame(job.about, broken.__cause__ or broken, step.group, waited_s))
        except Exception as error:
            # PyTorch looks at arguments before it sends. What is wrong on all ranks alike has done no harm.
            job.failure = error
            if not self._watch.all_refuse(step.group, turn):
                self._break(self._watch.give_up(job.about, error))
        return False

    def _wait(self, work: dist.Work) -> None:
        """Wait for a collective, but not beyond the first failure that another thread or rank tells of."""
        while not work.is_completed():
            if self._failure is not None:
                raise _Broken from self._failure
            # Also where it has ended since, a time-out says nothing of it: the last wait tells whether it has failed.
            with contextlib.suppress(RuntimeError):
                work.wait(_SLICE)
        try:
            work.wait()
        except RuntimeError as error:
            raise _Broken from error

    def _finish(self, job: _Job) -> None:
        with self._lock:
            is_ours = job in self._open
            if is_ours:
                self._open.remove(job)
        if is_ours:
            job.done.set_result(None)

    def _break(self, error: CommunicationError) -> None:
        """Let everything fail that was handed in, and the threads end."""
        with self._lock:
            jobs, self._open = self._open, []
            self._failure = self._failure or error
        for place, job in enumerate(jobs):
            job.failure = error if place == 0 else again(error)
            job.done.set_result(None)
        for each in self._queues:
            each.put(None)


@dataclass
class _Span:
    """Where a stage's work begins and ends in the stream."""

    stage: str
    begin: torch.cuda.Event = field(default_factory=lambda: torch.cuda.Event(enable_timing=True))
    end: torch.cuda.Event = field(default_factory=lambda: torch.cuda.Event(enable_timing=True))


class StreamPipeline:
    """One side stream per device in which every bucket's steps are enqueued when it is submitted."""

    def __init__(self, device: torch.device, stages: Iterable[str], watch: Watch) -> None:
        self._device = device
        self._watch = watch
        self._stages = tuple(stages)
        self._stream = torch.cuda.Stream(device)
        self._seconds = dict.fromkeys(self._stages, 0.0)
        self._spans: list[_Span] = []

    def submit(self, value: object, steps: Mapping[str, Step], about: str) -> Pending:
        """See `Pipeline.submit`. Errors in a step are raised here; NCCL's own come from its watchdog.

        Ranks are not asked whether they agree: they would have to wait for the device.
        """
        if self._watch.failure is not None:
            raise again(self._watch.failure)
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        finished: torch.futures.Future[Any] = torch.futures.Future(devices=[self._device])
        with torch.cuda.stream(self._stream):
            for tensor in value if isinstance(value, (list, tuple)) else [value]:
                if isinstance(tensor, torch.Tensor):
                    tensor.record_stream(self._stream)
            for stage in self._stages:
                if stage in steps:
                    value = self._work(stage, steps[stage], value)
            # The future keeps the side stream's place: who waits for it makes its own stream wait.
            finished.set_result(value)
        return Pending(finished)

    def seconds(self) -> dict[str, float]:
        """See `Pipeline.seconds`: time on the device. Waits for the work enqueued so far."""
        for span in self._spans:
            span.end.synchronize()
            self._seconds[span.stage] += span.begin.elapsed_time(span.end) / 1e3
        self._spans.clear()
        return dict(self._seconds)

    @property
    def is_idle(self) -> bool:
        """See `Pipeline.is_idle`."""
        return self._stream.query()

    def close(self) -> None:
        """See `Pipeline.close`."""
        self._stream.synchronize()

    def _work(self, stage: str, step: Step, value: object) -> object:
        span = _Span(stage)
        span.begin.record(self._stream)
        try:
            value = step.work(value, wait_simply) if isinstance(step, Collective) else step(value)
        except Exception as error:
            raise CommunicationError(f"busbw: averaging gradients ({stage}) failed: {clean(str(error))}") from error
        span.end.record(self._stream)
        self._spans = [kept for kept in self._spans if not self._taken(kept)]
        self._spans.append(span)
        return value

    def _taken(self, span: _Span) -> bool:
        """Add up a span that has ended, so that spans do not pile up over a training run."""
        if not span.end.query():
            return False
        self._seconds[span.stage] += span.begin.elapsed_time(span.end) / 1e3
        return True
