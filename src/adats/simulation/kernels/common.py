"""What all kernels share."""

import numba
import numpy as np

compiled = numba.njit(cache=True, error_model="numpy")


class KnownRng(np.random.Generator):
    """A generator whose type Numba knows at once; with a plain one, every call looks it up."""

    _numba_type_ = numba.types.NumPyRandomGeneratorType(np.random.default_rng(0))
