"""Every kind of image file × what may have happened to it: pixels of the right shape, or a line.

    python -m pytest tests/chaos/test_hostile_images.py               a fixed sample, in seconds
    python -m pytest tests/chaos/test_hostile_images.py -m slow -s    all of it, with counts

None of it may take more than MEMORY beyond what the process has.
"""

import warnings

import numpy as np
import pytest
from hostile_images import damaged_versions, refused_files, sound_images
from memory_limit import memory_limit

from aninfonce_jax.data.decode import Decoder, decode
from aninfonce_jax.data.headers import CorruptImageError

MEMORY = 256 * 2**20
SOUND = sound_images()
REFUSED = refused_files()
DECODERS = (Decoder(16), Decoder(64, channels=1, fit="squash"))


def fate(data):
    """Returns "decoded" or "refused"; anything else fails the test."""
    problems = []
    for decoder in DECODERS:
        try:
            pixels = decoder(data)
        except CorruptImageError as error:
            problems.append(str(error))
        else:
            assert pixels.shape == (decoder.size, decoder.size, decoder.channels)
            assert pixels.dtype == np.uint8
    assert len(problems) in (0, len(DECODERS)), problems
    assert not any("\n" in problem or "memory" in problem.lower() for problem in problems)
    return "refused" if problems else "decoded"


def try_all(data, seed, cuts, flips):
    """Returns how many damaged versions were decoded and how many refused."""
    counts = {"decoded": 0, "refused": 0}
    with memory_limit(MEMORY):
        for what, version in damaged_versions(data, np.random.default_rng(seed), cuts, flips):
            try:
                counts[fate(version)] += 1
            except BaseException as error:
                error.add_note(what)
                raise
    return counts


@pytest.mark.parametrize("kind", SOUND)
def test_a_sound_image_is_decoded(kind):
    with memory_limit(MEMORY):
        assert fate(SOUND[kind]) == "decoded"
    assert decode(SOUND[kind]).shape == (40, 48, 3)


@pytest.mark.parametrize("kind", REFUSED)
def test_other_formats_are_refused_by_name(kind):
    data, message = REFUSED[kind]
    with memory_limit(MEMORY), pytest.raises(CorruptImageError, match=message):
        decode(data)


@pytest.mark.parametrize("kind", SOUND)
def test_a_damaged_image_is_decoded_or_refused(kind):
    counts = try_all(SOUND[kind], seed=0, cuts=6, flips=8)
    print(f"{kind}: {counts['decoded']} decoded, {counts['refused']} refused")
    assert counts["refused"] >= 10, counts


@pytest.mark.slow
@pytest.mark.parametrize("kind", SOUND)
def test_many_damaged_images_are_decoded_or_refused(kind):
    counts = try_all(SOUND[kind], seed=1, cuts=500, flips=1_000)
    print(f"{kind}: {counts['decoded']} decoded, {counts['refused']} refused")
    assert counts["refused"] >= 400, counts


@pytest.mark.parametrize("kind", [kind for kind in SOUND if "BMP" not in kind])
def test_no_cut_image_is_decoded(kind):
    data = SOUND[kind]
    # A few formats end with bytes that no pixel needs.
    for end in np.linspace(0, len(data) * 0.98, 20).astype(int):
        assert fate(data[:end]) == "refused", end


@pytest.mark.parametrize("kind", [kind for kind in SOUND if kind.startswith("PNG")])
def test_no_flipped_bit_of_a_png_is_overlooked(kind):
    data = SOUND[kind]
    for place in np.random.default_rng(2).integers(0, len(data), 30).tolist():
        flipped = bytearray(data)
        flipped[place] ^= 4
        assert fate(bytes(flipped)) == "refused", place


def test_nothing_warns_and_no_program_is_started(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("a program was started")

    monkeypatch.setattr("subprocess.Popen", refuse)
    monkeypatch.setattr("os.system", refuse)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for data in (*SOUND.values(), *(data for data, _ in REFUSED.values())):
            fate(data)
