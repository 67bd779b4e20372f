"""`busbw.read`, `predict` and `compare` on recorded runs."""

from __future__ import annotations

import doctest
import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import busbw

DATA = Path(__file__).parents[2] / "tests" / "data"
CONGESTED = DATA / "runs" / "h20-2x8-roce-cross-switch" / "run.log"
DESCRIPTION = {"nodes": 2, "gpus_per_node": 8, "gpu": "H100 (DGX H100)"}


def command(*args: str | Path) -> dict[str, object]:
    program = Path(sysconfig.get_path("scripts")) / "busbw"
    output = subprocess.run([program, *args], capture_output=True, text=True, timeout=120)
    assert output.returncode in (0, 1, 3), output.stderr
    return json.loads(output.stdout)


def inputs() -> list[Path]:
    return [
        CONGESTED,
        *sorted((DATA / "runs" / "h20-2x8-ib").glob("*.log")),
        *sorted((DATA / "logs").glob("*.log"))[:8],
    ]


@pytest.mark.parametrize("path", inputs(), ids=lambda path: path.name)
def test_read_says_what_the_command_says(path: Path) -> None:
    assert busbw.read(path).document == command("explain", "--json", path)


@pytest.mark.parametrize("path", inputs(), ids=lambda path: path.name)
def test_every_part_of_the_answer_can_be_had(path: Path) -> None:
    runs = busbw.read(path)
    for name in [name for name in vars(busbw.Runs) if not name.startswith("_")]:
        if name not in ("tables", "frame"):
            getattr(runs, name)
    assert len(runs.findings) == len(runs.document["findings"])
    assert [len(c.channels) for c in runs.communicators] == [len(c["channels"]) for c in runs.document["communicators"]]


def test_a_run_is_judged() -> None:
    runs = busbw.read(CONGESTED)
    first = runs.findings[0]
    assert (runs.verdict, first.code, first.severity) == ("degraded", "fabric.congestion", "warning")
    assert first.evidence[0].line == 57
    assert first.expected_gain is not None
    assert first.expected_gain.to_busbw_gbs[0] > 3 * first.expected_gain.from_busbw_gbs
    assert [len(node.gpus) for node in runs.nodes] == [8, 8]
    assert runs.nodes[0].gpus[0] == busbw.Gpu(rank=0, device=0, bus_id="0x0f", name="NVIDIA H20")
    assert repr(runs).startswith("<busbw.Runs, 1 input, 1 table, 1 finding: degraded; busbw falls from 48.23")


def test_rings_and_their_crossings_are_typed() -> None:
    (communicator,) = busbw.read(CONGESTED).communicators
    assert (communicator.nranks, communicator.nnodes, len(communicator.channels)) == (16, 2, 16)
    assert communicator.channels[0].ring == (0, 7, 5, 6, 4, 3, 1, 2, 8, 15, 13, 14, 12, 11, 9, 10)
    assert {(c.from_rank, c.to_rank) for c in communicator.crossings} >= {(2, 8), (10, 0)}


def test_several_files_are_one_answer(tmp_path: Path) -> None:
    copy = tmp_path / "again.log"
    copy.write_bytes(CONGESTED.read_bytes())
    runs = busbw.read(CONGESTED, copy, threads=1)
    assert [part.path for part in runs.inputs] == [str(CONGESTED), str(copy)]
    assert len(runs.document["tables"]) == 2


def test_tables_are_frames_with_units_in_their_names() -> None:
    pytest.importorskip("pandas")
    (table,) = busbw.read(CONGESTED).tables
    assert list(table.columns) == [
        *("size_bytes", "count", "datatype", "redop", "root"),
        *("out_of_place_time_us", "out_of_place_algbw_gbs", "out_of_place_busbw_gbs", "out_of_place_wrong"),
        *("in_place_time_us", "in_place_algbw_gbs", "in_place_busbw_gbs", "in_place_wrong"),
        *("expected_busbw_gbs", "limit_busbw_gbs", "bottleneck"),
    ]
    peak = table.loc[table.out_of_place_busbw_gbs.idxmax()]
    assert (peak.size_bytes, peak.out_of_place_busbw_gbs) == (256 << 20, 48.23)
    assert table.root.isna().all()
    assert (table.attrs["collective"], table.attrs["nranks"], table.attrs["line"]) == ("all_reduce", 16, 1)


def test_a_frame_of_all_tables_says_where_rows_come_from(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    copy = tmp_path / "again.log"
    copy.write_bytes(CONGESTED.read_bytes())
    frame = busbw.read(CONGESTED, copy).frame
    assert list(frame.columns[:4]) == ["table", "input", "collective", "nranks"]
    assert frame.groupby("table").input.first().to_list() == [str(CONGESTED), str(copy)]
    assert len(frame) == 52


def test_a_log_without_a_table_gives_an_empty_frame(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    log = tmp_path / "run.log"
    log.write_text("host:1:2 [0] NCCL INFO NCCL version 2.27.5+cuda12.9\n")
    runs = busbw.read(log)
    assert (runs.tables, runs.frame.empty) == ([], True)
    assert runs.nccl == busbw.Nccl(version="2.27.5+cuda12.9", cuda="12.9", library="nccl")


def test_without_pandas_all_but_frames_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    runs = busbw.read(CONGESTED)
    assert runs.findings
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'busbw\[pandas\]'"):
        _ = runs.tables


@pytest.mark.parametrize(
    ("content", "error", "reason"),
    [
        (None, FileNotFoundError, "no such file; check the path"),
        ("", ValueError, "is empty"),
        ("nothing of interest\n", ValueError, "nothing that busbw knows"),
        ("\x7fELF\0\0\0\0", ValueError, "is not text"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, content: str | None, error: type[Exception], reason: str) -> None:
    path = tmp_path / "run.log"
    if content is not None:
        path.write_text(content)
    with pytest.raises(error) as caught:
        busbw.read(path)
    assert str(path) in str(caught.value)
    assert reason in str(caught.value)


def test_a_folder_and_no_path_are_refused(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError, match="name the files in it"):
        busbw.read(tmp_path)
    with pytest.raises(ValueError, match="no input"):
        busbw.read()


def test_a_file_of_others_is_refused(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        return  # root may read every file
    path = tmp_path / "run.log"
    path.touch(mode=0)
    with pytest.raises(PermissionError, match="permission denied"):
        busbw.read(path)


def test_a_cluster_is_predicted_from_a_dict() -> None:
    prediction = busbw.predict(DESCRIPTION, sizes=[1 << 20, 1 << 30])
    rows = prediction.document["rows"]
    assert (prediction.collective, prediction.nranks) == ("all_reduce", 16)
    assert [row["size_bytes"] for row in rows] == [1 << 20, 1 << 30]
    assert 0 < rows[0]["busbw_gbs"] < rows[1]["busbw_gbs"] <= rows[1]["limit_busbw_gbs"]


def test_a_cluster_is_predicted_from_a_description_and_from_a_log(tmp_path: Path) -> None:
    description = tmp_path / "cluster.toml"
    description.write_text("".join(f"{key} = {value!r}\n" for key, value in DESCRIPTION.items()))
    assert busbw.predict(description).document == busbw.predict(DESCRIPTION).document
    assert busbw.predict(CONGESTED, collective="all_gather").nranks == 16


def test_a_prediction_has_a_frame() -> None:
    pytest.importorskip("pandas")
    table = busbw.predict(DESCRIPTION).table
    assert (table.size_bytes.iloc[0], table.size_bytes.iloc[-1], len(table)) == (8, 8 << 30, 31)
    assert ((table.low_busbw_gbs < table.busbw_gbs) & (table.busbw_gbs < table.high_busbw_gbs)).all()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"cluster": {"nodes": 2}}, r"description: gpus_per_node is missing; write"),
        ({"cluster": {"nodes": None}}, r"description: "),
        ({"cluster": DESCRIPTION, "collective": "all_reduse"}, r"all_reduse: unknown; choose one of all_reduce"),
    ],
)
def test_a_description_with_a_fault_is_refused(arguments: dict[str, object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        busbw.predict(**arguments)


def test_runs_are_held_against_each_other() -> None:
    comparison = busbw.compare(DATA / "runs" / "h20-2x8-ib", DATA / "runs" / "h20-2x8-tcp")
    assert "53× faster at 8 GiB" in comparison.summary
    assert ("variable", "NCCL_IB_DISABLE") in {(d["kind"], d["name"]) for d in comparison.differences}
    pytest.importorskip("pandas")
    last = comparison.table.iloc[-1]
    assert (last.size_bytes, round(last.ratio)) == (8 << 30, 53)


def test_one_run_is_no_comparison() -> None:
    with pytest.raises(ValueError, match="a comparison needs two runs or more"):
        busbw.compare(CONGESTED)


def test_what_the_documentation_shows_is_so(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pandas")
    monkeypatch.chdir(DATA.parents[1])
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    result = doctest.testfile("docs/python.md", module_relative=False, optionflags=options, encoding="utf-8")
    assert (result.failed, result.attempted > 15) == (0, True)
