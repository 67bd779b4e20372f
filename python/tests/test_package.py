"""The package as pip installed it: the command, the module in Rust, and what says their types."""

import ast
import shutil
import subprocess
import sys
import sysconfig
from importlib import metadata, resources
from pathlib import Path

import busbw
from busbw import _native

COMMAND = Path(sysconfig.get_path("scripts")) / "busbw"


def run(*args: str) -> str:
    return subprocess.run([COMMAND, *args], capture_output=True, text=True, check=True, timeout=120).stdout


def test_command_and_package_have_one_version() -> None:
    version = metadata.version("busbw")
    assert busbw.__version__ == version
    assert run("--version").split() == ["busbw", version]


def test_the_command_is_the_program_itself() -> None:
    assert COMMAND.read_bytes()[:4] == b"\x7fELF", "a script in front of it could not start further ranks"
    assert shutil.which("busbw", path=str(COMMAND.parent)) == str(COMMAND)


def test_the_command_starts_itself_again_for_further_ranks() -> None:
    table = run("bench", "all_reduce", "--np", "2", "-b", "8", "-e", "8", "-n", "1", "-w", "1")
    rows = [line.split() for line in table.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    assert [(row[0], row[2]) for row in rows] == [("8", "float")]


def test_the_stub_names_what_the_module_has() -> None:
    stub = ast.parse(resources.files("busbw").joinpath("_native.pyi").read_text())
    declared = {node.name for node in stub.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    public = {name for name in dir(_native) if not name.startswith("_")}
    assert declared == public


def test_the_package_says_that_it_is_typed() -> None:
    assert resources.files("busbw").joinpath("py.typed").is_file()


def test_the_package_can_be_imported_first() -> None:
    subprocess.run([sys.executable, "-c", "import busbw"], check=True, timeout=120)
