"""The random numbers are those of the published generator, and depend on seed and position alone."""

from __future__ import annotations

import numpy as np
import pytest

from octavo.sampling.philox import philox4x32, uniform

# From the test vectors of Random123, which the authors of the generator publish.
VECTORS = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "words"), VECTORS)
def test_published_vectors(counter: tuple[int, ...], key: tuple[int, ...], words: tuple[int, ...]) -> None:
    result = philox4x32(np.array(counter, np.uint64).reshape(4, 1), np.array(key, np.uint64).reshape(2, 1))
    assert tuple(int(word) for word in result[:, 0]) == words


def test_a_draw_depends_on_its_seed_and_position_alone() -> None:
    seeds = np.array([0, 1, -1, 2**62, 1, 1], np.int64)
    positions = np.array([5, 5, 5, 5, 6, 5], np.int64)
    together = uniform(seeds, positions)
    alone = [uniform(seeds[i : i + 1], positions[i : i + 1])[0] for i in range(len(seeds))]
    assert together.tolist() == alone
    assert together[1] == together[5]
    assert len(set(together.tolist())) == 5


def test_draws_are_uniform() -> None:
    draws = uniform(np.full(100_000, 7, np.int64), np.arange(100_000))
    assert draws.min() > 0
    assert draws.max() < 1
    counts = np.histogram(draws, bins=50, range=(0, 1))[0]
    chi_square = ((counts - 2000) ** 2 / 2000).sum()
    assert chi_square < 90  # 49 degrees of freedom: above that once in 3,000 generators
