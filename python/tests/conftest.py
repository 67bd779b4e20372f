"""Settings of all tests: one thread per process, so that ranks do not crowd the machine out."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
