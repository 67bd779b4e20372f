"""Which runs there are: faults × shapes × seeds, and what each means for the job's settings."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from typing import Any

import words

CLASS = {
    "exception": "exception",
    "killed": "killed",
    "stopped": "stopped",
    "skip": "divergence",
    "uneven": "divergence",
    "order": "divergence",
    "size": "divergence",
    "dtype": "divergence",
    "kind": "divergence",
    "group": "divergence",
    "crossed": "divergence",
    "loader": "data",
    "evaluation": "busy",
    "checkpoint": "busy",
    "disk": "exception",
    "slow-link": "network",
    "cut-link": "network",
    "late-loader": "data",
    "late-compute": "busy",
    "late-link": "network",
    "sound": "none",
    "sound-slow": "none",
    "sound-straggler": "none",
    "sound-evaluating": "none",
    "sound-uneven": "none",
}
"""Every fault, and the class of its cause. A full disk whose writer tries again and again is busy."""

SHAPES = ("ddp", "grid", "pipeline")
LINKS = ("slow-link", "cut-link", "late-link")
OUTSIDE = ("killed", "stopped", *LINKS)
LATE = ("late-loader", "late-compute", "late-link")
"""A job that goes on, a rank or a host of which takes a twentieth of a step longer from some step on."""
LATE_BY = 0.05
LATE_STEPS = 20
"""After so many of these steps, dumps are asked for."""
"""What is done to the job rather than by it."""

AT_ONCE = ("exception", "killed")
"""Ranks end before anybody could look at their stacks."""

LAYOUTS = {
    "ddp": [(2, 1), (3, 1), (2, 2), (4, 1), (3, 2), (2, 3), (2, 4), (4, 2)],
    "grid": [(2, 2), (4, 1), (2, 2), (4, 1), (2, 4), (4, 2)],
    "pipeline": [(3, 1), (3, 1), (3, 2), (2, 3)],
}
"""Hosts and ranks of each."""
_UNTOLD = [("pipeline", fault) for fault in LATE]


@dataclass
class Plan:
    """A run that is to be made."""

    fault: str
    shape: str
    seed: int
    hosts: int = 0
    per_host: int = 0
    culprits: list[int] = field(default_factory=list)
    culprit_host: int | None = None
    kind: str = ""
    at_step: int = 0
    settings: dict[str, Any] = field(default_factory=dict)
    own: dict[int, dict[str, Any]] = field(default_factory=dict)
    """What one rank's settings say otherwise."""
    records: dict[tuple[int, int], dict[str, Any] | str | None] = field(default_factory=dict)
    """What is odd about a rank's batch; None: the shard ends before it."""
    names: dict[str, str] = field(default_factory=dict)
    launcher: list[str] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)
    disk_bytes: int | None = None
    steps: int = 0

    @property
    def name(self) -> str:
        """The run's folder."""
        return f"{self.fault}-{self.shape}-{self.seed}"

    @property
    def world(self) -> int:
        """How many ranks."""
        return self.hosts * self.per_host

    @property
    def asked_at(self) -> int | None:
        """After how many steps a person asks for dumps, where the job does not hang."""
        if not goes_on(self):
            return None
        return self.at_step + (LATE_STEPS if self.settings["step_varies"] else 0)

    @property
    def late_rate(self) -> str:
        """What a late link carries, so that sending a host's share of the gradients takes so much of a step longer."""
        width, layers = self.settings["width"], self.settings["layers"]
        gradients = 4 * (layers * (width + 1) * width + width + 1)
        sent = self.per_host * gradients * 2 * (self.world - 1) / self.world
        return f"{round(8 * sent / (LATE_BY * self.settings['step_s']) / 1000)}kbit"

    @property
    def groups(self) -> dict[str, tuple[str, list[int]]]:
        """Every process group's description and ranks by the number that PyTorch gives it."""
        settings = self.settings
        made = [("default_pg", list(range(self.world)))]
        made += [(name, ranks) for name, ranks in settings.get("groups", {}).items()]
        made += [(name, ranks) for name, lists in settings.get("grid", {}).items() for ranks in lists]
        made += [(f"{settings['link_name']}{one}_{other}", [one, other]) for one, other in settings.get("links", [])]
        return {str(number): group for number, group in enumerate(made)}

    def host_of(self, rank: int) -> int:
        """The number of a rank's host, from 1."""
        return rank // self.per_host + 1


def goes_on(plan: Plan) -> bool:
    """Whether the job moves to its end, whatever is done to it."""
    return plan.kind == "none" or plan.fault in LATE


def all_runs(seeds: list[int], shapes: list[str], faults: list[str]) -> list[Plan]:
    """Plan them, those of a seed together."""
    # What stages of a pipeline hand on, Gloo does not record: nobody could tell who is late.
    wanted = [(fault, shape) for shape in shapes for fault in faults if (shape, fault) not in _UNTOLD]
    return [make(fault, shape, seed) for seed in seeds for fault, shape in wanted]


def make(fault: str, shape: str, seed: int) -> Plan:
    """Plan a run: the same for the same three words on every machine."""
    choose = random.Random(f"{fault} {shape} {seed}")
    plan = Plan(fault, shape, seed, kind=CLASS[fault], at_step=choose.randint(6, 14))
    _place(plan, choose)
    _settings(plan, choose)
    words.speak(plan, choose)
    _FAULTS.get(fault, _sound)(plan, choose)
    return plan


def _place(plan: Plan, choose: random.Random) -> None:
    layouts = LAYOUTS[plan.shape]
    if plan.fault in LINKS:
        # Between two hosts nobody can tell whose cable it is.
        layouts = [layout for layout in layouts if layout[0] > 2]
    elif plan.kind == "divergence":
        layouts = [layout for layout in layouts if layout[0] * layout[1] > 2]
    plan.hosts, plan.per_host = choose.choice(layouts)
    if plan.fault in LINKS:
        plan.culprit_host = choose.randint(1, plan.hosts)
        plan.culprits = [rank for rank in range(plan.world) if plan.host_of(rank) == plan.culprit_host]
    elif plan.kind != "none":
        plan.culprits = [choose.randrange(plan.world)]


def _grid(plan: Plan, choose: random.Random) -> dict[str, Any]:
    """The groups of each shape, with names as people give them."""
    world = plan.world
    if plan.shape == "ddp":
        culprit = plan.culprits[0] if plan.culprits else 0
        other = choose.choice([rank for rank in range(world) if rank != culprit])
        return {"groups": {choose.choice(["loggers", "metrics", "half", "eval_group"]): sorted([culprit, other])}}
    if plan.shape == "grid":
        parts = choose.choice([2, 4]) if world == 8 else 2
        data, tensor = choose.choice([("dp", "tp"), ("data", "model"), ("DATA_PARALLEL", "TENSOR_PARALLEL")])
        tensors = [list(range(first, first + parts)) for first in range(0, world, parts)]
        return {
            "grid": {tensor: tensors, data: [list(range(first, world, parts)) for first in range(parts)]},
            "tensor": tensor,
            "data": data,
            "gradients_over": data,
            "last_first": False,
        }
    data = choose.choice(["dp", "data", "replicas"])
    stages = [list(range(stage, world, 3)) for stage in range(3)] if world > 3 else []
    pairs = [[first, first + 1] for first in range(world) if first % 3 < 2]
    return {
        "grid": {data: stages},
        "data": data,
        "gradients_over": data,
        "last_first": False,
        "links": pairs if choose.random() < 0.6 else [],
        "link_name": choose.choice(["pp", "p2p_", "stage"]),
        "gradient_first": False,
    }


def _settings(plan: Plan, choose: random.Random) -> None:
    every = choose.choice([25, 50, 100, 200])
    metrics = ["loss", *choose.sample(["samples", "scale", "norm"], choose.randint(1, 3))]
    choose.shuffle(metrics)
    plan.steps = plan.at_step + choose.randint(20, 40)
    plan.settings = {
        "seed": choose.randrange(10_000),
        "width": choose.choice([16, 32, 64, 128]),
        "layers": choose.choice([1, 2, 3]),
        "lr": choose.choice([0.01, 0.003, 0.0003]),
        "bucket_mb": choose.choice([25, 25, 0.02]),
        "timeout_s": 1800 if choose.random() < 0.1 else 9,
        # A group has PyTorch's own limit, half an hour, unless it is told another.
        "group_timeout_s": 1800 if choose.random() < 0.2 else 9,
        "patience_s": 4.0,
        "first_step": every * choose.randint(1, 400) - plan.at_step,
        "log_every": 1,
        "eval_every": every,
        "eval_ranks": list(range(plan.world)) if choose.random() < 0.5 else [],
        "eval_s": 0.1,
        "eval_pause_s": choose.choice([0.0, 0.002]),
        "save_every": every,
        "save_ranks": [0] if choose.random() < 0.3 else [],
        "write_pause_s": 0.0,
        "write_again": False,
        "tell_again": True,
        "by_torch": choose.random() < 0.5,
        "optimizer_bytes": 0,
        "checkpoints": "checkpoints",
        "labels": choose.choice([["cat", "dog"], ["0", "1"], ["neg", "pos", "neutral"]]),
        "metrics": metrics,
        "loss_type": "float32",
        "norm_type": "float32",
        "loss_group": "world",
        "scales": choose.choice([1, 4, 16]),
        "scale_from": "first",
        "sync_order": [],
        "dump_json": choose.random() < 0.5,
        "dump_prefix": choose.choice(["nccl_trace_rank_", "nccl_trace_rank_", "fr_rank_", "comm_lib_trace_rank_"]),
        "rows": choose.choice([4, 8, 12]),
        "step_s": choose.choice([0.02, 0.05, 0.1]),
        "step_varies": 0.0,
        "late_loader_s": 0.0,
        "late_compute_s": 0.0,
        **_grid(plan, choose),
    }
    plan.variables = {
        "TORCH_FR_BUFFER_SIZE": choose.choice(["12", "16", "24", "200"]),
        "GLOO_SOCKET_IFNAME": "eth0",
        "OMP_NUM_THREADS": "1",
    }
    redirects, tee = choose.choice([("3", "3"), ("3", "0"), ("3", "3"), ("2", "2"), ("1", "3")])
    plan.launcher = ["--redirects", redirects, "--tee", tee]


def _on_culprit(plan: Plan, **other: object) -> None:
    for rank in plan.culprits:
        plan.own[rank] = other


def _at_fault(plan: Plan, record: dict[str, Any] | str | None) -> None:
    for rank in plan.culprits:
        plan.records[rank, plan.at_step] = record


def _exception(plan: Plan, choose: random.Random) -> None:
    cut = '{"rows": 8, "labels": ["' + plan.settings["labels"][0]
    unlike: list[dict[str, Any] | str] = [cut, {"labels": ["#unk"]}, {"rows": None}, {"without": "labels"}]
    _at_fault(plan, choose.choice(unlike))


def _skip(plan: Plan, choose: random.Random) -> None:
    plan.settings["tell_not_finite"] = choose.random() < 0.5
    # Mostly the others call one of another kind next, and all hang; where sizes differ, Gloo aborts.
    if choose.random() < 0.75:
        rest = [name for name in plan.settings["metrics"] if name != "samples"]
        plan.settings["metrics"] = ["samples", *rest]
    _at_fault(plan, {"scale": float("nan")})


def _uneven(plan: Plan, choose: random.Random) -> None:
    _at_fault(plan, None)


def _order(plan: Plan, choose: random.Random) -> None:
    if plan.shape == "grid" and choose.random() < 0.3:
        _from_fault_on(plan, last_first=True)
        return
    names = ["loss", "samples", *choose.sample(["scale", "norm"], choose.randint(0, 2))]
    choose.shuffle(names)
    plan.settings["metrics"] = names
    swapped = list(names)
    first = choose.randrange(len(names) - 1)
    swapped[first], swapped[first + 1] = swapped[first + 1], swapped[first]
    _from_fault_on(plan, metrics=swapped)


def _size(plan: Plan, choose: random.Random) -> None:
    if "norm" not in plan.settings["metrics"]:
        plan.settings["metrics"].append("norm")
    rows = plan.settings["rows"]
    _at_fault(plan, {"rows": choose.choice([rows - 1, rows // 2, rows + 3, rows * 2])})
    _detail(plan, choose)


def _dtype(plan: Plan, choose: random.Random) -> None:
    if choose.random() < 0.5:
        _from_fault_on(plan, loss_type="float64")
    else:
        if "norm" not in plan.settings["metrics"]:
            plan.settings["metrics"].append("norm")
        _from_fault_on(plan, norm_type="float64")
    _detail(plan, choose)


def _kind(plan: Plan, choose: random.Random) -> None:
    if "scale" not in plan.settings["metrics"]:
        plan.settings["metrics"].append("scale")
    if choose.random() < 0.5:
        plan.settings["scale_from"] = "largest"
        _from_fault_on(plan, scale_from="first")
    else:
        _from_fault_on(plan, scale_from="largest")
    _detail(plan, choose)


def _group(plan: Plan, choose: random.Random) -> None:
    if plan.shape == "grid" and choose.random() < 0.6:
        _from_fault_on(plan, gradients_over=plan.settings["tensor"])
    elif plan.shape == "pipeline" and plan.world > 3 and choose.random() < 0.5:
        _from_fault_on(plan, gradients_over="world")
    else:
        if plan.shape == "pipeline" and plan.world == 3:
            culprit = plan.culprits[0]
            other = choose.choice([rank for rank in range(3) if rank != culprit])
            plan.settings["grid"] = {plan.settings["data"]: [sorted([culprit, other])]}
            # Only the group is wanted: no gradients are averaged over it.
            plan.settings["data"] = "none"
        name = next(iter(plan.settings.get("groups") or plan.settings["grid"]))
        _from_fault_on(plan, loss_group=name)


def _crossed(plan: Plan, choose: random.Random) -> None:
    if plan.shape == "pipeline" and plan.world == 3:
        plan.culprits = [1]
        plan.own = {}
        _from_fault_on(plan, gradient_first=True)
        return
    name = choose.choice(list(plan.settings.get("groups") or plan.settings["grid"]))
    order = ["world", name]
    plan.settings["sync_order"] = order
    _from_fault_on(plan, sync_order=order[::-1])


def _from_fault_on(plan: Plan, **other: object) -> None:
    """Let settings of the culprit change at the step of the fault, as a schedule would."""
    _on_culprit(plan, schedule={str(plan.settings["first_step"] + plan.at_step): other})


def _detail(plan: Plan, choose: random.Random) -> None:
    if choose.random() < 0.3:
        plan.variables["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"


def _loader(plan: Plan, choose: random.Random) -> None:
    slow: list[dict[str, Any]] = [
        {"remote": "127.0.0.1:9000"},
        {"file": "shards/next.ready"},
        {"pipe": "shards/stream"},
        {"delay_s": 600.0},
        {"text": "lorem ipsum dolor sit amet " * 40, "rounds": 10_000_000},
    ]
    _at_fault(plan, choose.choice(slow))


def _evaluation(plan: Plan, choose: random.Random) -> None:
    plan.settings |= {"eval_ranks": list(plan.culprits), "eval_s": 600.0, "save_ranks": []}


def _checkpoint(plan: Plan, choose: random.Random) -> None:
    slow = {"write_pause_s": choose.choice([0.05, 0.2]), "optimizer_bytes": 40 << 20, "by_torch": False}
    plan.settings |= {"save_ranks": list(plan.culprits), "eval_ranks": [], **slow}


def _disk(plan: Plan, choose: random.Random) -> None:
    plan.disk_bytes = 64 << 10
    plan.settings |= {"save_ranks": list(plan.culprits), "eval_ranks": [], "optimizer_bytes": 1 << 20}
    if plan.settings["by_torch"]:
        plan.settings |= {"width": 128, "layers": 3}
    elif choose.random() < 0.6:
        plan.settings |= {"write_again": True, "tell_again": choose.random() < 0.7}
        plan.kind = "busy"


def _outside(plan: Plan, choose: random.Random) -> None:
    plan.steps = 100_000
    if plan.fault == "slow-link":
        plan.settings |= {"width": 128, "layers": 2}


def _sound(plan: Plan, choose: random.Random) -> None:
    plan.settings |= {"patience_s": 1e6, "timeout_s": 60, "group_timeout_s": 60, "step_s": 0.15}
    plan.steps = 60
    if plan.fault == "sound-slow":
        plan.settings |= {"step_s": 0.9}
        plan.steps = 16
        plan.at_step = 6
    elif plan.fault == "sound-straggler":
        plan.own[choose.randrange(plan.world)] = {"step_s": 0.25}
    elif plan.fault == "sound-evaluating":
        plan.settings |= {"eval_ranks": list(range(plan.world)), "eval_s": 3.0}
    elif plan.fault == "sound-uneven":
        _steady(plan, choose)


def _steady(plan: Plan, choose: random.Random) -> None:
    """Let steps vary a little on every rank, as batches do, and keep enough of them in the recorder."""
    plan.settings |= {"patience_s": 1e6, "timeout_s": 60, "group_timeout_s": 60, "log_every": 1}
    plan.settings |= {"step_s": choose.choice([0.2, 0.3, 0.4]), "step_varies": choose.choice([0.005, 0.01, 0.02])}
    plan.steps = plan.at_step + LATE_STEPS + 25
    plan.variables["TORCH_FR_BUFFER_SIZE"] = choose.choice(["400", "2000"])


def _late(plan: Plan, choose: random.Random) -> None:
    _steady(plan, choose)
    if plan.fault == "late-link":
        plan.settings |= {"width": 128, "layers": 3}
    else:
        _from_fault_on(plan, **{f"late_{plan.fault[5:]}_s": LATE_BY * plan.settings["step_s"]})


_FAULTS = {
    "exception": _exception,
    "skip": _skip,
    "uneven": _uneven,
    "order": _order,
    "size": _size,
    "dtype": _dtype,
    "kind": _kind,
    "group": _group,
    "crossed": _crossed,
    "loader": _loader,
    "evaluation": _evaluation,
    "checkpoint": _checkpoint,
    "disk": _disk,
    "killed": _outside,
    "stopped": _outside,
    "slow-link": _outside,
    "cut-link": _outside,
    "late-loader": _late,
    "late-compute": _late,
    "late-link": _late,
}


def shard(plan: Plan, rank: int) -> str:
    """Write a rank's shard: a line per batch."""
    choose = random.Random(f"shard {plan.name} {rank}")
    labels, rows = plan.settings["labels"], plan.settings["rows"]
    own = {**plan.settings, **plan.own.get(rank, {})}
    lines = []
    for number in range(1, min(plan.steps, 5000) + 1):
        record: dict[str, Any] = {"rows": rows, "labels": choose.choices(labels, k=rows), "delay_s": own["step_s"]}
        if own["step_varies"]:
            record["delay_s"] *= choose.gauss(1.0, own["step_varies"])
        odd = plan.records.get((rank, number), {})
        if odd is None:
            break
        if isinstance(odd, str):
            lines.append(odd)
            continue
        if "without" in odd:
            del record[odd["without"]]
        else:
            record |= odd
        lines.append(json.dumps(record))
    return "\n".join(lines) + "\n"
