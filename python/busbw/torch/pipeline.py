"""Stages that work on bucket after bucket, so that the backward pass never waits and stages overlap.

On a CPU each stage is a thread: while one bucket travels between hosts, the next is reduced within its
host. On a GPU all stages of a device share one side stream, in which collectives are only enqueued:
NCCL's groups then start in the same order on every rank, as they must, and computation goes on beside.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

Step = Callable[[Any], Any]
"""What a stage does to a bucket: takes the step before's result, returns the next one's argument."""


class CommunicationError(RuntimeError):
    """A collective failed: a rank has died, is stuck, or sends something else."""


class Pipeline(Protocol):
    """What both pipelines do."""

    def submit(self, value: object, steps: Mapping[str, Step]) -> torch.futures.Future[Any]:
        """Send `value` through `steps`, keyed by stage; return at once with the last one's result to come."""

    def seconds(self) -> dict[str, float]:
        """Return the time that each stage has worked so far."""

    @property
    def is_idle(self) -> bool:
        """Whether everything submitted has been finished."""

    def close(self) -> None:
        """End the stages. What was submitted before is finished."""


def pipeline_for(device: torch.device, stages: Iterable[str]) -> Pipeline:
    """Return the pipeline that suits tensors on `device`."""
    if device.type == "cuda":
        return StreamPipeline(device, stages)
    return ThreadPipeline(stages)


@dataclass
class _Job:
    value: Any
    steps: Mapping[str, Step]
    done: torch.futures.Future[None]
    failure: BaseException | None = None


class ThreadPipeline:
    """A thread per stage, each with a queue; a bucket passes through all of them in order."""

    def __init__(self, stages: Iterable[str]) -> None:
        self._stages = tuple(stages)
        self._queues: list[queue.SimpleQueue[_Job | None]] = [queue.SimpleQueue() for _ in self._stages]
        self._seconds = dict.fromkeys(self._stages, 0.0)
        self._failure: BaseException | None = None
        self._submitted = self._finished = 0
        self._threads = [
            # A daemon, so that a rank whose peer has died can leave while a collective still waits.
            threading.Thread(target=self._run, args=(place,), name=f"busbw-{stage}", daemon=True)
            for place, stage in enumerate(self._stages)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, value: object, steps: Mapping[str, Step]) -> torch.futures.Future[Any]:
        """See `Pipeline.submit`. After a failure every bucket fails at once: its peers are gone."""
        job = _Job(value, steps, torch.futures.Future())

        def result(_: object) -> Any:  # noqa: ANN401 (what the last step returned)
            # Raised here and not by set_exception: only so does C++ (DDP's reducer) see an error.
            if job.failure is not None:
                raise job.failure
            return job.value

        finished = job.done.then(result)
        self._submitted += 1
        self._queues[0].put(job)
        return finished

    def seconds(self) -> dict[str, float]:
        """See `Pipeline.seconds`: time on the clock, waiting for peers included."""
        return dict(self._seconds)

    @property
    def is_idle(self) -> bool:
        """See `Pipeline.is_idle`."""
        return self._finished == self._submitted

    def close(self) -> None:
        """See `Pipeline.close`."""
        self._queues[0].put(None)
        if self._failure is None:
            for thread in self._threads:
                thread.join()

    def _run(self, place: int) -> None:
        stage, following = self._stages[place], self._queues[place + 1 : place + 2]
        while (job := self._queues[place].get()) is not None:
            self._work(stage, job)
            if following:
                following[0].put(job)
            else:
                self._finished += 1
                job.done.set_result(None)
        for last in following:
            last.put(None)

    def _work(self, stage: str, job: _Job) -> None:
        step = job.steps.get(stage)
        job.failure = job.failure or self._failure
        if step is None or job.failure is not None:
            return
        begin = time.perf_counter()
        try:
            job.value = step(job.value)
        except Exception as error:  # whatever it is, the trainer's thread is to see it
            job.failure = self._failure = _explained(stage, error)
        self._seconds[stage] += time.perf_counter() - begin


@dataclass
class _Span:
    """Where a stage's work begins and ends in the stream."""

    stage: str
    begin: torch.cuda.Event = field(default_factory=lambda: torch.cuda.Event(enable_timing=True))
    end: torch.cuda.Event = field(default_factory=lambda: torch.cuda.Event(enable_timing=True))


class StreamPipeline:
    """One side stream per device in which every bucket's steps are enqueued when it is submitted."""

    def __init__(self, device: torch.device, stages: Iterable[str]) -> None:
        self._device = device
        self._stages = tuple(stages)
        self._stream = torch.cuda.Stream(device)
        self._seconds = dict.fromkeys(self._stages, 0.0)
        self._spans: list[_Span] = []

    def submit(self, value: object, steps: Mapping[str, Step]) -> torch.futures.Future[Any]:
        """See `Pipeline.submit`. Errors in a step are raised here; NCCL's own come from its watchdog."""
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        finished: torch.futures.Future[Any] = torch.futures.Future(devices=[self._device])
        with torch.cuda.stream(self._stream):
            if isinstance(value, torch.Tensor):
                value.record_stream(self._stream)
            for stage in self._stages:
                if stage in steps:
                    value = self._work(stage, steps[stage], value)
            # The future keeps the side stream's place: who waits for it makes its own stream wait.
            finished.set_result(value)
        return finished

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
            value = step(value)
        except Exception as error:
            raise _explained(stage, error) from error
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


def _explained(stage: str, error: Exception) -> CommunicationError:
    cause = next(iter(str(error).splitlines()), "") or type(error).__name__
    explained = CommunicationError(
        f"busbw: the {stage} stage of gradient averaging failed ({cause}). If a connection closed or a limit "
        "of time ran out, another rank has died or is stuck: look for the first error among all ranks."
    )
    explained.__cause__ = error
    return explained
