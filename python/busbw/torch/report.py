"""What averaging has cost and saved so far."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class CompressionReport:
    """Sums over all steps of one rank.

    Attributes:
        mode: how gradients are averaged.
        steps: steps done.
        gradient_bytes: size of all gradients averaged.
        sent_bytes: what left a host for the others, counted by the algorithms (rings of ranks in host order);
            with one host, what left a rank.
        plain_bytes: what would have left it with one ring all-reduce over all ranks.
        buckets: how many buckets went each way: `plain`, `two-level`, `topk`, `both`.
        error_norm: norm of what was kept back over norm of what there was to send, at the last measured step;
            0 where nothing is lost, None where it was not measured.
        stage_seconds: time in each stage; stages overlap.
    """

    mode: str
    steps: int
    gradient_bytes: int
    sent_bytes: int
    plain_bytes: int
    buckets: dict[str, int] = field(default_factory=dict)
    error_norm: float | None = None
    stage_seconds: dict[str, float] = field(default_factory=dict)

    @property
    def ratio(self) -> float:
        """How many times less was sent than plain all-reduce would have; 1 where nothing was."""
        return self.plain_bytes / self.sent_bytes if self.sent_bytes else 1.0

    def __str__(self) -> str:
        error = "" if self.error_norm is None else f", error norm {self.error_norm:.3f}"
        steps = max(self.steps, 1)
        stages = ", ".join(
            f"{stage} {1e3 * seconds / steps:.1f} ms" for stage, seconds in self.stage_seconds.items() if seconds
        )
        return (
            f"{self.mode}: {self.steps} steps, {self.gradient_bytes / steps / 1e6:.1f} MB of gradients a step, "
            f"sent {self.sent_bytes / steps / 1e6:.2f} MB ({self.ratio:.1f}x less than plain){error}; {stages}"
        )
