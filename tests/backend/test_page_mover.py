"""Pages copied to host memory and back are the same bytes, whatever happens to them between."""

from __future__ import annotations

import numpy as np
import pytest

from pegainfer_core.backend import DType, KvLayout, NumpyBackend
from pegainfer_core.backend.numpy.arrays import stored_pages

LAYOUT = KvLayout(num_layers=3, num_kv_heads=2, head_dim=8, page_tokens=16, dtype=DType.BFLOAT16)
SLOT_BYTES = LAYOUT.page_bytes + 4096


@pytest.mark.parametrize("count", [1, 2, 7])
def test_a_byte_pattern_comes_back(count: int) -> None:
    """K08, unit: fill pages with a known pattern, offload, overwrite, restore."""
    backend = NumpyBackend(1)
    kv = backend.kv_pool(LAYOUT, 20)
    mover = backend.page_mover(kv)
    mover.open()
    pages = stored_pages(kv)
    rng = np.random.default_rng(count)
    pages[...] = rng.integers(0, 1 << 16, pages.shape, dtype=np.uint16)
    before = pages.copy()
    sources = rng.permutation(np.arange(1, 21))[:count].tolist()
    targets = rng.permutation(np.arange(1, 21))[:count].tolist()
    slab = mover.slab(16 * SLOT_BYTES)
    assert slab.address % 4096 == 0 and len(slab.memory) == 16 * SLOT_BYTES
    addresses = [slab.address + i * SLOT_BYTES for i in rng.permutation(16)[:count].tolist()]

    assert mover.save(sources, addresses).done()
    np.testing.assert_array_equal(pages, before)
    pages.fill(0xFFFF)
    assert mover.load(addresses, targets, mover.fence()).done()

    for source, target in zip(sources, targets, strict=True):
        np.testing.assert_array_equal(pages[target], before[source])
    others = sorted(set(range(21)) - set(targets))
    assert (pages[others] == 0xFFFF).all()
    mover.close()
    backend.close()


def test_memory_that_cannot_be_had_is_an_error() -> None:
    backend = NumpyBackend(1)
    mover = backend.page_mover(backend.kv_pool(LAYOUT, 1))
    with pytest.raises(MemoryError, match="MiB of host memory cannot be had"):
        mover.slab(1 << 60)
    backend.close()


def test_contexts_kept_dense_learn_of_loaded_pages() -> None:
    backend = NumpyBackend(1)
    kv = backend.kv_pool(LAYOUT, 4)
    mover = backend.page_mover(kv)
    slab = mover.slab(SLOT_BYTES)
    before = kv.contexts._written.copy()
    kv.contexts._step = 9
    mover.load([slab.address], [3], None)
    assert kv.contexts._written[3] == 10 and kv.contexts._step == 9
    assert (np.delete(kv.contexts._written, 3) == np.delete(before, 3)).all()
    backend.close()
