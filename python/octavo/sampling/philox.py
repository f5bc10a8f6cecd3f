"""Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
2011).

A draw is a function of (seed, position) alone: no state, no order, no batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (0x9E3779B9, 0xBB67AE85)
_MASK = np.uint64(0xFFFFFFFF)
_WORD = np.uint64(32)
_ROUNDS = 10


def philox4x32(counter: NDArray[np.uint64], key: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Four random words for each counter of four words [4, n] and key of two [2, n], all below 2**32."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        product0, product1 = _MULTIPLIERS[0] * c0, _MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (
            (product1 >> _WORD) ^ c1 ^ k0,
            product1 & _MASK,
            (product0 >> _WORD) ^ c3 ^ k1,
            product0 & _MASK,
        )
        k0, k1 = (k0 + np.uint64(_WEYL[0])) & _MASK, (k1 + np.uint64(_WEYL[1])) & _MASK
    return np.stack((c0, c1, c2, c3))


def uniform(seeds: NDArray[np.int64], positions: NDArray[Any]) -> NDArray[np.float64]:
    """One number in (0, 1) for each 64-bit seed and position [n]."""
    key = seeds.astype(np.int64, copy=False).view(np.uint64)
    place = positions.astype(np.uint64)
    zero = np.zeros_like(place)
    words = philox4x32(
        np.stack((place & _MASK, place >> _WORD, zero, zero)), np.stack((key & _MASK, key >> _WORD))
    )
    unit: NDArray[np.float64] = (words[0].astype(np.float64) + 0.5) * 2.0**-32
    return unit
