"""docs/benchmarks.md is what benches/results say, and benches/table.py and benches/soak.py judge as they should."""

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCHES = Path(__file__).resolve().parents[2] / "benches"


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Load a program of benches/ as a module."""

    def module(name: str) -> ModuleType:
        monkeypatch.syspath_prepend(str(BENCHES))
        spec = importlib.util.spec_from_file_location(f"benches_{name}", BENCHES / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        loaded = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, spec.name, loaded)  # dataclasses look their module up
        spec.loader.exec_module(loaded)
        return loaded

    return module


def fleet(folder: Path, name: str, date: str, wall: float) -> None:
    spread = {"min": wall, "median": wall, "max": wall}
    row = {"form": "text", "goal_s": 10.0, "goal_met": wall <= 10.0, "wall_s": spread}
    machine = {"cpu": "A CPU @ 2.50GHz", "cores": 2}
    origin = {"date": date, "machine": machine, "commit": {"hash": "0123456789", "modified": False}}
    (folder / name).write_text(json.dumps({"schema": "busbw.bench-fleet/1", **origin, "nodes": 1000, "rows": [row]}))


def test_the_page_is_what_the_results_say() -> None:
    done = subprocess.run(
        [sys.executable, BENCHES / "table.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_newest_counts_and_missed_goals_come_first(load: Any, tmp_path: Path) -> None:
    fleet(tmp_path, "fleet-2026-11-21.json", "2026-11-21T10:00:00Z", 1.0)
    fleet(tmp_path, "fleet-2026-11-20.json", "2026-11-20T10:00:00Z", 2.0)
    page = load("table").page(tmp_path)
    assert "| 1.00 s (1.00 to 1.00) | 10 s | A CPU, 2 cores | 01234567 | 2026-11-21 |" in page
    assert "2.00 s" not in page
    assert "0 of 1 goals are missed." in page
    fleet(tmp_path, "fleet-2026-11-22.json", "2026-11-22T10:00:00Z", 11.0)
    page = load("table").page(tmp_path)
    assert page.index("## Goals missed") < page.index("11.00 s") < page.index("## Goals met")


def test_a_figure_is_named_that_became_worse_by_more_than_the_spread(load: Any, tmp_path: Path) -> None:
    table = load("table")
    diff = load("diff")
    fleet(tmp_path, "fleet-2026-11-20.json", "2026-11-20T10:00:00Z", 1.0)
    assert diff.regressions(tmp_path) == ([], 0)
    fleet(tmp_path, "fleet-2026-11-21.json", "2026-11-21T10:00:00Z", 1.04)
    assert diff.regressions(tmp_path) == ([], 1)
    fleet(tmp_path, "fleet-2026-11-22.json", "2026-11-22T10:00:00Z", 1.2)
    (line,), compared = diff.regressions(tmp_path)
    assert line.startswith("explaining a fleet: 1000 nodes as text: 1.04 s (1.04 to 1.04) -> 1.20 s")
    assert compared == 1
    less = [table.Measured(*spread, more_is_better=False) for spread in ((1.0, 2.0, 3.0), (2.5, 3.5, 4.0), (3.1, 4, 5))]
    more = [table.Measured(*spread, more_is_better=True) for spread in ((3.0, 4.0, 5.0), (2.0, 2.5, 3.5), (1, 2, 2.9))]
    for first, within, worse in (less, more):
        assert [diff.is_worse(first, after) for after in (within, worse)] == [False, True]
        assert not diff.is_worse(worse, first)


def test_other_machines_are_not_compared(load: Any, tmp_path: Path) -> None:
    load("table")
    diff = load("diff")
    fleet(tmp_path, "fleet-2026-11-20.json", "2026-11-20T10:00:00Z", 1.0)
    fleet(tmp_path, "fleet-2026-11-21.json", "2026-11-21T10:00:00Z", 2.0)
    file = tmp_path / "fleet-2026-11-21.json"
    file.write_text(file.read_text().replace("A CPU", "Another CPU"))
    assert diff.regressions(tmp_path) == ([], 0)


@pytest.mark.parametrize(
    ("result", "says"),
    [({"schema": "busbw.unheard-of/1"}, "no reader"), ({"schema": "busbw.bench-fleet/1"}, "not of the form")],
)
def test_a_result_that_cannot_be_read_is_named(load: Any, tmp_path: Path, result: dict[str, str], says: str) -> None:
    (tmp_path / "odd-2026-11-22.json").write_text(json.dumps(result))
    with pytest.raises(SystemExit, match=f"odd-2026-11-22.json: {says}"):
        load("table").page(tmp_path)


def test_a_replay_is_kept_with_machine_and_commit(load: Any, tmp_path: Path) -> None:
    row = {"network": "160 Mbit/s", "stack": "plain", "devices": 8, "images_per_s": 18.9, "efficiency_pct": 20.3}
    found = {"schema": "busbw.synthetic/1", "model": "vgg16", "rows": [row]}
    result = load("replay").with_origin(found)
    assert found.items() <= result.items()
    (tmp_path / "replay-2026-11-22.json").write_text(json.dumps(result))
    page = load("table").page(tmp_path)
    assert "18.9 images/s" in page
    assert f"{result['machine']['cores']} cores" in page
    assert result["date"][:10] in page


def test_a_result_of_before_changes_no_commit(load: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several benchmarks in a row only the first would be of a clean commit."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run([*git, *words], check=True)
    origin = load("origin")
    monkeypatch.setattr(origin, "ROOT", tmp_path)
    (tmp_path / "benches/results").mkdir(parents=True)
    (tmp_path / "benches/results/fleet-2026-11-22.json").touch()
    commit = origin.commit()
    assert commit is not None
    assert not commit["modified"]
    (tmp_path / "benches/fleet.py").touch()
    assert origin.commit()["modified"]


def test_growth_is_told_from_a_peak_and_from_the_start(load: Any) -> None:
    soak = load("soak")
    seconds = [float(second) for second in range(200)]
    steady = [1000.0 if second > 20 else 50.0 * second for second in seconds]
    peaks = [value + (5000.0 if index % 37 == 0 else 0.0) for index, value in enumerate(steady)]
    leaking = [value + 2.0 * second for value, second in zip(steady, seconds)]
    assert soak.growth(seconds, steady) == 0.0
    assert abs(soak.growth(seconds, peaks)) < 1.0
    assert soak.growth(seconds, leaking) == pytest.approx(300, rel=0.05)
