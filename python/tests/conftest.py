"""Settings of all tests, made before anything imports PyTorch."""

import importlib.util
import os

# One thread per process, so that ranks do not crowd the machine out.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Kernels run in Triton's interpreter, which needs no GPU.
os.environ.setdefault("TRITON_INTERPRET", "1")

_NEED_TORCH = ["test_torch_*.py", "test_compress*.py", "test_horovod*.py", "test_synthetic*.py", "test_advisor.py"]
collect_ignore_glob = [] if importlib.util.find_spec("torch") else _NEED_TORCH


def pytest_report_header() -> str:
    """Say what is left out, so that a run without PyTorch is not taken for a whole one."""
    return f"SKIPPED: {', '.join(_NEED_TORCH)} (PyTorch is not installed)" if collect_ignore_glob else "PyTorch: yes"
