import pytest

from pegainfer_core.sampling import philox4x32, request_seed, token_bits

# Known-answer vectors published with the Random123 library.
VECTORS = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    (
        (0xFFFFFFFF,) * 4,
        (0xFFFFFFFF,) * 2,
        (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    ),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "expected"), VECTORS)
def test_published_vectors(
    counter: tuple[int, int, int, int],
    key: tuple[int, int],
    expected: tuple[int, int, int, int],
) -> None:
    assert philox4x32(counter, key) == expected


def test_layout() -> None:
    seed, position, sample = 0x1122334455667788, 0x100000007, 5
    words = philox4x32((7, 1, 5, 0), (0x55667788, 0x11223344))
    assert token_bits(seed, sample, position) == words[0] | words[1] << 32
    words = philox4x32((7, 1, 0, 1), (0x55667788, 0x11223344))
    assert request_seed(seed, position) == words[0] | words[1] << 32


def test_negative_seed_is_its_twos_complement() -> None:
    assert token_bits(-1, 0, 3) == token_bits(2**64 - 1, 0, 3)


def test_every_coordinate_matters() -> None:
    draws = {
        token_bits(seed, sample, position)
        for seed in (0, 1, 2**32, 2**63)
        for sample in range(4)
        for position in range(50)
    }
    assert len(draws) == 4 * 4 * 50
    assert len({request_seed(0, i) for i in range(1000)}) == 1000
