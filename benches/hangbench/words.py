"""The words of a job, by seed: names of files and functions, what it prints, so that no wording can be learnt."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plan import Plan

JOB = Path(__file__).resolve().parent / "job"

NAMES = {
    "train": ["train", "pretrain", "run_training", "finetune"],
    "data": ["data", "dataset", "loader", "corpus", "datasets", "input_pipeline"],
    "evaluation": ["evaluation", "validation", "evals", "bench", "testing"],
    "checkpoints": ["checkpoints", "saver", "ckpt", "persistence", "snapshots"],
    "metrics": ["metrics", "stats", "reduce_logs", "telemetry"],
    "parallel": ["parallel", "engine", "model_wrapper", "strategy", "dist_model"],
    "recorder": ["recorder", "watch", "heartbeat", "fr_monitor"],
    "say": ["say", "console", "printer", "output"],
    "evaluate": ["evaluate", "validate", "run_eval", "eval_epoch", "test_model", "auswerten", "compute_perplexity"],
    "score_batch": ["score_batch", "eval_step", "forward_only", "score"],
    "save_checkpoint": ["save_checkpoint", "save", "dump_state", "store_weights", "persist", "sauvegarder"],
    "write_blocks": ["write_blocks", "write_chunks", "_write", "flush_to_disk"],
    "write_file": ["write_file", "put", "upload_blob", "store"],
    "load_batch": ["load_batch", "get_batch", "__getbatch", "collate", "make_batch", "next_sample", "lade"],
    "fetch_remote": ["fetch_remote", "download", "get_object", "read_blob"],
    "wait_for_file": ["wait_for_file", "open_shard", "await_part", "poll_part"],
    "read_pipe": ["read_pipe", "read_stream", "take", "from_preprocessor"],
    "augment": ["augment", "perturb", "add_noise", "mixup"],
    "tokenize": ["tokenize", "encode", "bpe_merge", "featurize"],
    "parse_record": ["parse_record", "decode", "parse_line", "to_record"],
    "Reader": ["Reader", "ShardDataset", "Stream", "TokenLoader", "Samples"],
    "report": ["report", "log_step", "log_metrics", "reduce_metrics", "all_reduce_logs"],
    "average_loss": ["average_loss", "mean_loss", "reduce_loss", "loss_over_ranks"],
    "gather_counts": ["gather_counts", "gather_samples", "collect_throughput"],
    "share_scale": ["share_scale", "agree_on_scale", "broadcast_scale", "sync_scaler"],
    "average_norm": ["average_norm", "error_norm", "reduce_residuals"],
    "sync_groups": ["sync_groups", "step_sync", "group_sync", "finish_step"],
    "sync_gradients": ["sync_gradients", "reduce_grads", "allreduce_gradients", "average_grads"],
    "Recorder": ["Recorder", "Watch", "HeartbeatMonitor", "HangWatch"],
    "Parallel": ["Parallel", "Engine", "Strategy", "Wrapped"],
    "Metrics": ["Metrics", "Stats", "Telemetry", "Averages"],
}

STEPS = [
    "step {step} loss {loss:.2f}",
    "step {step:>7} | loss {loss:.4f}",
    "[{time}] iter {step} loss={loss:.5f}",
    "rank {rank}: step={step} train/loss={loss:.3f}",
    '{{"step": {step}, "loss": {loss:.4f}}}',
    "Schritt {step}: Verlust {loss:.3f}",
    "第{step}步 损失={loss:.4f}",
    "étape {step} perte {loss:.3f}",
    "paso {step} pérdida {loss:.3f}",
    " iteration {step:8d}/ 500000 | lm loss: {loss:.6E} |",
    "Train Epoch: 3 [{step}] Loss: {loss:.6f}",
    "[rank{rank}] {step}: {loss:.3f}",
]
STARTS = [
    "rank {rank} of {world} on {host}",
    "starting training, world size {world}",
    "[{host}] rank {rank}/{world} ready",
    "Training beginnt mit {world} Prozessen",
    "训练开始: {world} 卡, rank {rank}",
]
EVALS = ["eval {step}: {score:.4f}", "validation @ {step} = {score:.3f}", "Auswertung {step}: {score:.3f}"]
SAVES = ["saved {path}", "checkpoint at step {step} -> {path}", "Modell gesichert: {path}", "已保存 {path}"]
ODDS = [
    "step {step}: loss is not finite, skipped",
    "skipping batch {step} (nan)",
    "NaN in Schritt {step}, übersprungen",
]
AGAINS = ["cannot write: {error}", "{error}; trying again", "Schreiben fehlgeschlagen: {error}"]
ENDS = ["done after {step}", "training finished", "fertig ({step})", "训练结束"]
FORMATS = [
    "%(asctime)s %(levelname)s %(message)s",
    "[%(asctime)s][%(name)s][%(levelname)s] - %(message)s",
    "%(message)s",
]
PROJECTS = ["llm-pretrain", "vit", "speech", "recsys", "bert_de", "diffusion", "proj42", "exp", "rl-agent", "segment"]


def speak(plan: Plan, choose: random.Random) -> None:
    """Choose a run's words."""
    plan.names = {name: choose.choice(others) for name, others in NAMES.items()}
    plan.names["project"] = choose.choice(PROJECTS)
    every = list(range(plan.world))
    plan.settings |= {
        "texts": {
            "step": choose.choice(STEPS),
            "start": choose.choice(STARTS),
            "eval": choose.choice(EVALS),
            "saved": choose.choice(SAVES),
            "not_finite": choose.choice(ODDS),
            "write_again": choose.choice(AGAINS),
            "end": choose.choice(ENDS),
        },
        "print_ranks": choose.choice([every, every, [0]]),
        "logging": choose.random() < 0.5,
        "to_stderr": choose.random() < 0.4,
        "log_format": choose.choice(FORMATS),
        "tell_not_finite": True,
    }


def program(plan: Plan) -> dict[str, str]:
    """Return the job's files, by name."""
    # What stands in quotes is a setting or a file.
    found = re.compile(r"""(?<!["'])(?<!nn\.)\b(""" + "|".join(NAMES) + r")\b")
    files = {}
    for path in sorted(JOB.glob("*.py")):
        name = path.stem
        if name.startswith("parallel_"):
            if name != f"parallel_{plan.shape}":
                continue
            name = "parallel"
        text = re.sub(r'^"""[^"]*"""\n\n', "", path.read_text())
        files[f"{plan.names[name]}.py"] = found.sub(lambda word: plan.names[word[1]], text)
    return files
