"""What busbw has in Rust (crates/python). Private: `busbw` wraps all of it."""

import os
from collections.abc import Sequence

_Path = str | os.PathLike[str]

__version__: str

def explain(paths: Sequence[_Path], cluster: _Path | None = None, threads: int | None = None) -> str: ...
def predict(paths: Sequence[_Path], description: str | None, collective: str | None, sizes: Sequence[int]) -> str: ...
def compare(paths: Sequence[_Path], collective: str | None = None, anyway: bool = False) -> str: ...
