"""What a run is made of: the parts of `busbw.read`'s answer, as its JSON names them.

Field names, units and meanings are those of `docs/schema/explain-1.schema.json`: sizes are bytes, times microseconds
(`_us`), bandwidths GB/s, 10^9 bytes per second (`_gbs`). `None` is what the inputs do not tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeVar

Json = Mapping[str, Any]
"""An object of the JSON."""

Verdict = Literal["healthy", "no-errors", "degraded", "failed", "inconclusive"]
"""The state of a run as a whole.

`healthy`: speed or machines were judged and passed; `no-errors`: nothing is wrong, and speed was not judged;
`inconclusive`: the summary asks what would decide.
"""

Severity = Literal["error", "warning", "info"]
"""`error`: the run failed or its results are wrong; `warning`: costs speed, or will cost a run."""

Part = TypeVar("Part")


@dataclass(frozen=True)
class Input:
    """A file that was read."""

    path: str
    kind: str
    """What most of its recognised lines are: `nccl-tests`, `nccl-log` …, or `unknown`."""
    kinds: tuple[str, ...]
    """Everything that was recognised in it, most lines first."""
    lines: int
    bytes: int


@dataclass(frozen=True)
class Judged:
    """Something that was judged; what is not listed was not."""

    what: str
    how: str
    """Against what, with the figures."""
    outcome: Literal["passed", "failed", "undecided"]
    speed: Mapping[str, float] | None = None
    """`measured_busbw_gbs` and `expected_busbw_gbs` (GB/s), where a speed was compared with the expected one."""
    question: str | None = None
    """What would decide it, where it is undecided."""


@dataclass(frozen=True)
class Evidence:
    """A line that shows a finding."""

    path: str
    line: int
    """From 1; 0 where the whole input is meant."""
    text: str
    """The line as it stands in the input, cut to 400 bytes."""
    note: str | None
    """What to see in it."""


@dataclass(frozen=True)
class Gain:
    """What a remedy should gain."""

    from_busbw_gbs: float
    to_busbw_gbs: tuple[float, float]
    """The low and the high end."""
    basis: str
    """Where the figure comes from."""


@dataclass(frozen=True)
class Alternative:
    """Another cause of what a finding shows."""

    code: str
    """The code of the finding that it would be."""
    share: float
    """In how many of all cases that show the same it is the cause, from 0 to 1."""
    cause: str
    tell: str
    """What tells it apart."""


@dataclass(frozen=True)
class Finding:
    """A conclusion: what is wrong, the evidence, and the fix."""

    code: str
    """What it is about: `fabric.congestion`, `net.socket-fallback` … (docs/findings.md)."""
    severity: Severity
    confidence: float
    """How sure it is, from 0 to 1."""
    title: str
    explanation: str
    """Paragraphs, separated by empty lines."""
    evidence: tuple[Evidence, ...]
    """The most telling line first."""
    alternatives: tuple[Alternative, ...]
    """What else may be the cause of the same, the likeliest first."""
    remedy: tuple[str, ...]
    """What to do, in order. Text in backquotes can be pasted into a shell."""
    expected_gain: Gain | None
    page: str
    """The address of the page about this code."""


CulpritClass = Literal["exception", "killed", "stopped", "divergence", "data", "busy", "gpu", "network"]
"""What kind of trouble a rank has for which the others wait.

`divergence`: it called something else than they; `data`: it is in its data loader; `busy`: it computes or writes.
"""


@dataclass(frozen=True)
class Waiting:
    """Ranks that wait in a collective."""

    group: str
    """The process group: `default_pg`; empty where it is not told."""
    collective: str
    """The collective and its number in the group, where that is told: `all-reduce 17`."""
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class Slower:
    """How much longer a rank takes for its own part of a step than the others, while the job goes on."""

    percent: float
    """By so much of a step."""
    from_percent: float
    """The interval in which the true value lies in 95% of cases."""
    to_percent: float
    """Its other end."""
    step_ms: float
    """How long a step takes."""
    steps: int
    """Over how many steps this was measured."""
    since_us: int | None
    """When the first of them began, since 1970; None where the recorder does not reach back to where it began."""


@dataclass(frozen=True)
class Culprit:
    """The ranks for which the others wait."""

    ranks: tuple[int, ...]
    host: str | None
    """Their host, where it is known and one."""
    doing: str | None
    """What they were doing instead: where their stack is, or how their output ends."""
    waiting: Waiting | None
    """Who waits for them, and in what."""
    fault: CulpritClass | None = None
    """What kind of trouble they have, where the inputs show it: `class` of the JSON."""
    slower: Slower | None = None
    """How much longer they take, where the job goes on."""


def culprit(values: Json | None) -> Culprit | None:
    """Make a culprit of its JSON."""
    if values is None:
        return None
    waiting = values["waiting"]
    if waiting is not None:
        waiting = Waiting(waiting["group"], waiting["collective"], tuple(waiting["ranks"]))
    slower = values["slower"]
    if slower is not None:
        slower = Slower(**slower)
    return Culprit(tuple(values["ranks"]), values["host"], values["doing"], waiting, values["class"], slower)


@dataclass(frozen=True)
class Expected:
    """What such a machine should reach."""

    busbw_gbs: float
    size_bytes: int | None
    """The message size that this is about."""
    bottleneck: str
    why: str


@dataclass(frozen=True)
class Gpu:
    """A GPU of a node."""

    rank: int | None
    device: int | None
    bus_id: str | None
    name: str | None


@dataclass(frozen=True)
class Nic:
    """A network interface of a node, as NCCL names it."""

    index: int | None
    name: str
    port: int | None
    link: str | None
    """`IB`, `RoCE` …"""
    address: str | None


@dataclass(frozen=True)
class Node:
    """A machine that ranks ran on."""

    host: str
    gpus: tuple[Gpu, ...]
    nics: tuple[Nic, ...]


@dataclass(frozen=True)
class Nccl:
    """The library that ran."""

    version: str | None
    cuda: str | None
    library: Literal["nccl", "rccl"]


@dataclass(frozen=True)
class Variable:
    """An environment variable that was seen, and how it stands in this run."""

    name: str
    value: str
    meaning: str | None
    default: str | None
    versions: str | None
    """The versions of NCCL that read it."""
    standing: Literal["read", "of others", "overrides", "harmful", "no effect"]
    remark: str | None
    """What this value does, or why it has no effect."""
    path: str
    line: int


@dataclass(frozen=True)
class Channel:
    """One of NCCL's parallel rings and trees."""

    id: int
    ring: tuple[int, ...] | None
    """Ranks in the order of the ring."""


@dataclass(frozen=True)
class Crossing:
    """An ordered pair of ranks on different nodes that rings connect."""

    from_rank: int
    to_rank: int
    channels: tuple[int, ...]


@dataclass(frozen=True)
class Communicator:
    """A communicator: who takes part, over which channels and transports."""

    id: str
    nranks: int | None
    nnodes: int | None
    coll_channels: int | None
    transports: tuple[str, ...]
    gdr: bool | Literal["mixed"] | None
    """Whether GPUDirect RDMA is in use; `mixed`: by some connections only."""
    channels: tuple[Channel, ...]
    crossings: tuple[Crossing, ...]


@dataclass(frozen=True)
class Advice:
    """What to run next where the inputs leave a question open."""

    question: str
    command: str
    then: str
    """What to do with its output."""


@dataclass(frozen=True)
class Problem:
    """A part of the inputs that could not be read."""

    path: str
    line: int
    text: str


def part(kind: type[Part], values: Json, **converted: Any) -> Part:  # noqa: ANN401 - each part has its own types
    """Make a part from an object of the JSON.

    Args:
        kind: the dataclass to make.
        values: the object. Fields that the class does not have are passed over: newer versions may add some.
        converted: fields that are no plain values, made already.
    """
    plain = {field.name: values[field.name] for field in fields(kind) if field.name not in converted}  # type: ignore[arg-type]
    return kind(**{name: tuple(v) if isinstance(v, list) else v for name, v in plain.items()}, **converted)


def parts(kind: type[Part], objects: Iterable[Json]) -> tuple[Part, ...]:
    """Make a part of plain values from each object."""
    return tuple(part(kind, values) for values in objects)


def finding(values: Json) -> Finding:
    """Make a finding."""
    gain = values["expected_gain"]
    return part(
        Finding,
        values,
        evidence=parts(Evidence, values["evidence"]),
        alternatives=parts(Alternative, values["alternatives"]),
        expected_gain=part(Gain, gain) if gain else None,
    )


def node(values: Json) -> Node:
    """Make a node."""
    return part(Node, values, gpus=parts(Gpu, values["gpus"]), nics=parts(Nic, values["nics"]))


def communicator(values: Json) -> Communicator:
    """Make a communicator."""
    crossings = (Crossing(c["from"], c["to"], tuple(c["channels"])) for c in values["crossings"])
    return part(Communicator, values, channels=parts(Channel, values["channels"]), crossings=tuple(crossings))
