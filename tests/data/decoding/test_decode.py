"""Every kind of pixel becomes 8-bit grey or RGB by the stated rule, or is refused."""

import io

import numpy as np
import pytest
from PIL import Image

from vitrail.config.schema import Data
from vitrail.data.decoding.decode import PICTURES, UnreadableError, limit_pixels, to_bytes


def encoded(image, kind="PNG", **options):
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def decoded(raw, size=0, **options):
    return PICTURES.picture(raw, Data(**options), size)


def test_rgb_and_grey_come_back_to_the_bit():
    pixels = np.arange(5 * 7 * 3, dtype=np.uint8).reshape(5, 7, 3)
    assert (np.asarray(decoded(encoded(Image.fromarray(pixels)))) == pixels).all()
    grey = decoded(encoded(Image.fromarray(pixels[:, :, 0])))
    assert grey.mode == "L" and (np.asarray(grey) == pixels[:, :, 0]).all()


def test_transparency_is_laid_on_white():
    image = Image.new("RGBA", (2, 1), (200, 0, 0, 0))
    image.putpixel((1, 0), (200, 0, 0, 255))
    assert np.asarray(decoded(encoded(image))).tolist() == [[[255, 255, 255], [200, 0, 0]]]
    faded = decoded(encoded(Image.new("LA", (1, 1), (0, 51))))
    assert faded.mode == "L" and np.asarray(faded).item() == 204  # 255 * (1 - 51 / 255)


def test_palette_images_are_color_unless_the_palette_is_grey():
    color = Image.new("P", (2, 2))
    color.putpalette([10, 20, 30] * 256)
    assert not PICTURES.probe(encoded(color), Data()).grey
    assert decoded(encoded(color)).getpixel((0, 0)) == (10, 20, 30)
    grey = Image.new("P", (2, 2))
    grey.putpalette([v for i in range(256) for v in (i, i, i)])
    assert PICTURES.probe(encoded(grey), Data()).grey
    assert decoded(encoded(grey)).mode == "L"


def test_palette_with_a_transparent_color_is_laid_on_white():
    image = Image.new("P", (2, 1))
    image.putpalette([9, 9, 90, 40, 50, 60] + [0] * 12)
    image.putpixel((1, 0), 1)
    raw = encoded(image, transparency=0)
    assert np.asarray(decoded(raw)).tolist() == [[[255, 255, 255], [40, 50, 60]]]


def test_sixteen_bits_are_scaled_by_the_full_range():
    values = np.array([[0, 128, 257, 32768, 65535]], np.uint16)
    expected = [[round(v * 255 / 65535) for v in values[0].tolist()]]
    assert np.asarray(decoded(encoded(Image.fromarray(values)))).tolist() == expected


def test_one_bit_and_cmyk():
    assert np.asarray(decoded(encoded(Image.new("1", (1, 1), 1)))).item() == 255
    assert decoded(encoded(Image.new("CMYK", (4, 4)), "JPEG")).mode == "RGB"


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_applied_and_the_header_agrees(orientation):
    pixels = np.zeros((16, 32), np.uint8)
    pixels[:8, :8] = 255  # the bright corner is upper-left as stored
    exif = Image.Exif()
    exif[0x0112] = orientation
    raw = encoded(Image.fromarray(pixels), "JPEG", exif=exif, quality=95)
    image, header = decoded(raw), PICTURES.probe(raw, Data())
    assert image.size == (header.width, header.height)
    assert image.size == ((16, 32) if orientation > 4 else (32, 16))
    corners = {
        (0, 0): (1, 5), (1, 0): (2, 6), (1, 1): (3, 7), (0, 1): (4, 8)
    }  # where the corner goes, by the EXIF standard  # fmt: skip
    bright = next(c for c, which in corners.items() if orientation in which)
    x, y = bright[0] * (image.width - 1), bright[1] * (image.height - 1)
    assert image.getpixel((x, y)) > 200


def test_a_large_jpeg_decoded_for_a_small_size_keeps_twice_that_size():
    raw = encoded(Image.new("RGB", (1600, 1200), (80, 90, 100)), "JPEG")
    small = decoded(raw, size=64)
    assert min(small.size) >= 128 and max(small.size) < 1600


def test_too_many_pixels_are_refused_before_decoding(monkeypatch):
    raw = encoded(Image.new("L", (300, 200)))
    monkeypatch.setattr(Image.Image, "load", lambda self: pytest.fail("decoded"))
    with pytest.raises(UnreadableError, match=r"300 x 200 pixels, more than data.max_pixels"):
        PICTURES.probe(raw, Data(max_pixels=59_999))
    assert PICTURES.probe(raw, Data(max_pixels=60_000)).width == 300


def test_a_bomb_is_refused_and_pil_is_put_back_as_it_was():
    before = Image.MAX_IMAGE_PIXELS
    raw = bytearray(encoded(Image.new("L", (8, 8))))
    raw[16:24] = (60_000).to_bytes(4, "big") * 2  # the header claims 3.6 billion pixels
    import zlib

    raw[29:33] = zlib.crc32(bytes(raw[12:29])).to_bytes(4, "big")
    with limit_pixels(1000), pytest.raises(UnreadableError, match="max_pixels"):
        PICTURES.probe(bytes(raw), Data(max_pixels=1000))
    assert before == Image.MAX_IMAGE_PIXELS


def test_truncated_empty_and_foreign_files(tmp_path):
    raw = encoded(Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64), np.uint8)))
    with pytest.raises(UnreadableError, match="cannot be decoded"):
        decoded(raw[: len(raw) // 2])
    with pytest.raises(UnreadableError) as empty:
        decoded(b"")
    assert empty.value.kind == "missing"
    for other in (b"GIF89a", b"%!PS-Adobe-3.0 EPSF-3.0\n", b"hello", b"\0" * 500):
        with pytest.raises(UnreadableError):
            decoded(other)
    with pytest.raises(UnreadableError) as gone:
        PICTURES.probe(tmp_path / "none.png", Data())
    assert gone.value.kind == "missing"
    with pytest.raises(UnreadableError):
        PICTURES.probe(tmp_path, Data())


def test_floats_must_lie_between_zero_and_one():
    assert to_bytes(np.array([0.0, 0.5, 1.0])).tolist() == [0, 128, 255]
    assert to_bytes(np.zeros((0, 2))).shape == (0, 2)
    for bad in (-0.01, 1.01, np.nan, np.inf):
        with pytest.raises(UnreadableError, match="outside of"):
            to_bytes(np.array([0.5, bad]))
    with pytest.raises(UnreadableError):
        to_bytes(np.array([-1]))
    with pytest.raises(UnreadableError):
        to_bytes(np.array(["a"]))
