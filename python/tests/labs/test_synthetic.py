"""`python -m busbw.synthetic`: what it measures, the table and its other forms."""

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import ranks
from torch.distributed import FileStore

from busbw.horovod.launch import Place
from busbw.synthetic.__main__ import main
from busbw.synthetic.job import measure
from busbw.synthetic.plot import svg
from busbw.synthetic.result import Row, Table, merged
from busbw.synthetic.settings import UsageError, parser, settings_of
from busbw.synthetic.workload import Profile, _bucketed

FIELD_REPORT = Table(
    "vgg16",
    128,
    "GPU",
    None,
    tuple(
        Row(network, "plain", devices, total / devices, 0.0)
        for network, totals in {"TCP": (251, 1977, 847), "HARP": (251, 1977, 1644)}.items()
        for devices, total in zip((1, 8, 16), totals)
    ),
)


def test_efficiency_is_the_field_reports() -> None:
    percent = [round(FIELD_REPORT.efficiency(row) or 0) for row in FIELD_REPORT.rows]
    # The report prints 40 for 40.9.
    assert percent == [100, 98, 21, 100, 98, 41]


def test_rows_sum_up_measured_values() -> None:
    row = Row.of("TCP", "plain", 4, [9.0, 11.0])
    assert (row.per_device, row.images_per_s, row.deviation) == (10.0, 40.0, pytest.approx(1.96))


def test_the_table_reads_well() -> None:
    lines = str(FIELD_REPORT).splitlines()
    assert lines[0] == "vgg16, batch 128 per GPU"
    assert lines[1].split() == ["network", "stack", "devices", "images/s", "efficiency"]
    assert lines[4].split() == ["TCP", "plain", "16", "847.0", "±0.0", "21%"]
    alone = Table("vgg16", 1, "GPU", 5.0, (Row("TCP", "topk", 2, 1.0, 0.0),))
    assert "replayed with 5 ms of computation a batch" in str(alone)
    assert str(alone).splitlines()[-1].rstrip().endswith("±0.0"), "no efficiency without one device's figure"


def test_json_comes_back_and_tables_join(tmp_path: Path) -> None:
    rows = FIELD_REPORT.rows
    for name, part in (("tcp", rows[:3]), ("harp", rows[3:])):
        (tmp_path / name).write_text(Table("vgg16", 128, "GPU", None, part).to_json())
    assert merged([tmp_path / "tcp", tmp_path / "harp"]) == FIELD_REPORT
    written = json.loads((tmp_path / "tcp").read_text())
    assert written["schema"] == "busbw.synthetic/1"
    assert written["rows"][2]["images_per_s"] == 847
    assert round(written["rows"][2]["efficiency_pct"]) == 21
    (tmp_path / "other").write_text(Table("vgg19", 128, "GPU", None, rows).to_json())
    with pytest.raises(ValueError, match="another run than vgg16's"):
        merged([tmp_path / "tcp", tmp_path / "other"])
    (tmp_path / "wrong").write_text("{}")
    with pytest.raises(ValueError, match="wrong is no table"):
        merged([tmp_path / "wrong"])


def test_the_picture_has_a_bar_for_every_row() -> None:
    root = ElementTree.fromstring(svg(FIELD_REPORT))
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "847 (21%)" in texts
    assert "16 GPUs" in texts
    # Background, a key for each of two series, and the bars.
    assert len(list(root.iter("{http://www.w3.org/2000/svg}rect"))) == 1 + 2 + 6


def test_buckets_fill_as_in_ddp() -> None:
    mebi = (1 << 20) // 4
    arrived = [(0.2, 1000), (0.3, mebi), (0.4, 10 * mebi), (0.5, 20 * mebi), (0.9, 7)]
    buckets, ready = _bucketed(arrived)
    assert buckets == (1000 + mebi, 30 * mebi, 7)
    assert ready == (0.3, 0.5, 1.0)
    profile = Profile(buckets, ready, 0.1)
    assert profile.nbytes == 4 * (1007 + 31 * mebi)
    assert Profile.from_json(profile.to_json()) == profile


def test_settings_fit_the_job() -> None:
    def settings(line: str, world: int = 8, local: int = 4) -> tuple[tuple[str, ...], tuple[int, ...]]:
        made = settings_of(parser().parse_args(line.split()), world, local)
        return made.stacks, made.devices

    assert settings("") == (("plain",), (8,))
    assert settings("--sweep") == (("plain", "two-level", "topk", "both"), (1, 4, 8))
    assert settings("--stack topk --devices 8,2,2") == (("topk",), (2, 8))
    with pytest.raises(UsageError, match="the job has 8 ranks"):
        settings("--devices 16")
    for line in ("--compute-ms 10", "--replay --compute-ms 0"):
        with pytest.raises(UsageError, match="--compute-ms"):
            settings(line)


@pytest.mark.parametrize("line", ["--batch-size 0", "--devices 1,x", "--stack fast", "--ratio 2", "--warmup -1"])
def test_bad_usage(line: str) -> None:
    with pytest.raises(SystemExit, match="2"):
        parser().parse_args(line.split())


def test_tables_of_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.json").write_text(FIELD_REPORT.to_json())
    assert main(["--table", str(tmp_path / "a.json"), "--plot", str(tmp_path / "a.svg")]) == 0
    assert str(FIELD_REPORT) in capsys.readouterr().out
    assert (tmp_path / "a.svg").read_text().startswith("<svg")
    assert main(["--table", str(tmp_path / "none.json")]) == 2
    assert "none.json" in capsys.readouterr().err


@pytest.mark.parametrize("output", ["--json", "--plot"])
def test_a_place_that_cannot_be_written_is_told_before_anything_is_measured(
    output: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for ranks_here in ([], ["--np", "2"]):
        assert main([*ranks_here, output, "/no/such/folder/out"]) == 2
        said = capsys.readouterr()
        assert "/no/such/folder/out: there is no folder /no/such/folder" in said.err
        assert said.out == ""


SMALL = "--model squeezenet1_1 --image-size 32 --batch-size 2 --warmup 1 --iters 2 --batches-per-iter 1 --intra-size 1"


def synthetic(line: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "busbw.synthetic", *line.split()]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200)


def test_the_command_replays_all_stacks(tmp_path: Path) -> None:
    pytest.importorskip("torchvision", reason="torchvision is not installed")
    line = (
        f"{SMALL} --np 2 --sweep --devices 1,2 --replay --compute-ms 5 --network loopback --json {tmp_path}/sweep.json"
    )
    ran = synthetic(line)
    assert ran.returncode == 0, ran.stderr
    table = merged([tmp_path / "sweep.json"])
    stacks = ["plain", "two-level", "topk", "both"]
    assert [(row.stack, row.devices) for row in table.rows] == [(stack, n) for stack in stacks for n in (1, 2)]
    assert all(row.per_device > 0 and row.network == "loopback" for row in table.rows)
    assert max(row.per_device for row in table.rows) <= 2 / 0.005, "5 ms of computation were waited for"
    assert str(table) in ran.stdout
    assert f"Total img/sec on 2 CPU(s): {table.rows[-1].images_per_s:.1f}" in ran.stdout


def train(rank: int, directory: str) -> None:
    given = parser().parse_args(f"{SMALL} --stack both --no-cuda --json {directory}/trained.json".split())
    measure(given, Place(rank, 2, "test", on_one_host=True), FileStore(f"{directory}/store", 2))


def test_training_itself(tmp_path: Path) -> None:
    pytest.importorskip("torchvision", reason="torchvision is not installed")
    ranks.run(2, train, str(tmp_path), directory=tmp_path, group=False)
    table = merged([tmp_path / "trained.json"])
    assert [(row.stack, row.devices) for row in table.rows] == [("both", 2)]
    assert table.compute_ms is None
    assert table.rows[0].images_per_s > 0


def test_unknown_models_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torchvision", reason="torchvision is not installed")
    assert main(["--model", "vgg17", "--replay", "--compute-ms", "1"]) == 2
    assert "no model 'vgg17'; it has" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "says"),
    [("--model vgg17 --replay --compute-ms 1", "no model 'vgg17'; it has"), ("--devices 4", "the job has 2 ranks")],
)
def test_ranks_that_cannot_start_say_why_once(flags: str, says: str) -> None:
    pytest.importorskip("torchvision", reason="torchvision is not installed")
    ran = synthetic(f"--np 2 --no-cuda {flags}")
    assert ran.returncode == 2
    assert says in ran.stderr
    # PyTorch may log that it ends the other rank.
    assert ran.stderr.count("busbw.synthetic: ") == 1, ran.stderr
    assert "Traceback" not in ran.stderr
