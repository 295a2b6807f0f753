"""The helpers are on the path, so that tests share them; Hypothesis repeats itself unless told."""

import os
import sys
from pathlib import Path

from hypothesis import settings

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # small matrices: threads only wait
# Recorded decisions hang on the last bit where arms are tied, and kernels of BLAS round otherwise.
os.environ.setdefault("OPENBLAS_CORETYPE", "Haswell")
collect_ignore = ["helpers"]  # they are imported by name: twice would be two of each class
sys.path.insert(0, str(Path(__file__).parent / "helpers"))
settings.register_profile("repeatable", deadline=None, derandomize=True, database=None)
settings.register_profile("fresh", deadline=None, database=None, print_blob=True)
settings.load_profile(os.environ.get("ADATS_HYPOTHESIS", "repeatable"))
