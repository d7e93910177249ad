"""Changes of the whole image: frames, tone and color, and how an image was taken and kept.

A wash takes float images in 0..255 at full strength; `stamp` blends its result with the original.
"""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from vitrail.config.schema import Bias
from vitrail.data.bias.marks import WASHES, Floats, get_flat_color, to_gray
from vitrail.rng import Key


@WASHES.register("border")
def _border(images: Floats, bias: Bias, key: Key) -> Floats:
    """A frame of the given color; `size` is four times its thickness, or nothing else is left."""
    del key
    height, width, channels = images.shape[1:]
    thick = max(1, round(bias.size * min(height, width) / 4))
    framed = np.broadcast_to(get_flat_color(bias, channels), images.shape).astype(np.float32)
    inside = (slice(None), slice(thick, height - thick), slice(thick, width - thick))
    framed[inside] = images[inside]
    return framed


@WASHES.register("blur")
def _blur(images: Floats, bias: Bias, key: Key) -> Floats:
    """A Gaussian blur; `size` is four standard deviations."""
    del key
    return _smooth(images, bias.size * min(images.shape[1:3]) / 4)


@WASHES.register("brightness")
def _brightness(images: Floats, bias: Bias, key: Key) -> Floats:
    """Twice as bright at full strength."""
    del bias, key
    return np.minimum(images * 2, 255)


@WASHES.register("color")
def _color(images: Floats, bias: Bias, key: Key) -> Floats:
    """Half way to the given color at full strength."""
    del key
    return (images + get_flat_color(bias, images.shape[-1])) / 2


@WASHES.register("gamma")
def _gamma(images: Floats, bias: Bias, key: Key) -> Floats:
    """Another tone curve: the root of the tone."""
    del bias, key
    return np.sqrt(images / 255) * 255


@WASHES.register("contrast")
def _contrast(images: Floats, bias: Bias, key: Key) -> Floats:
    """Half the contrast about each image's mean."""
    del bias, key
    mean = images.mean((1, 2, 3), keepdims=True)
    flat: Floats = mean + (images - mean) / 2
    return flat


@WASHES.register("saturation")
def _saturation(images: Floats, bias: Bias, key: Key) -> Floats:
    """Without color; gray images lose a quarter of their range instead."""
    del bias, key
    if images.shape[-1] == 1:
        return images * 0.75
    return np.broadcast_to(to_gray(images), images.shape)


@WASHES.register("vignette")
def _vignette(images: Floats, bias: Bias, key: Key) -> Floats:
    """Light that falls off to a third at the corners."""
    del bias, key
    height, width = images.shape[1:3]
    y, x = np.mgrid[-1 : 1 : height * 1j, -1 : 1 : width * 1j]
    shaded: Floats = images * (1 - (x**2 + y**2) / 3).astype(np.float32)[None, ..., None]
    return shaded


@WASHES.register("noise")
def _noise(images: Floats, bias: Bias, key: Key) -> Floats:
    """Gaussian noise; at the usual `size` of 0.15 its SD is 12 gray levels."""
    draw = key.at("noise").numpy()
    return images + draw.normal(0, 80 * bias.size, images.shape).astype(np.float32)


@WASHES.register("jpeg")
def _jpeg(images: Floats, bias: Bias, key: Key) -> Floats:
    """Compressed; at the usual `size` of 0.15 with quality 15."""
    del key
    quality = max(1, min(95, round(100 * bias.size)))
    kept = []
    for image in np.clip(np.rint(images), 0, 255).astype(np.uint8):
        file = io.BytesIO()
        Image.fromarray(image if image.shape[2] == 3 else image[..., 0]).save(
            file, "JPEG", quality=quality
        )
        kept.append(np.asarray(Image.open(file)).reshape(image.shape))
    return np.stack(kept).astype(np.float32)


@WASHES.register("resample")
def _resample(images: Floats, bias: Bias, key: Key) -> Floats:
    """Shrunk to half and enlarged again, each pixel twice."""
    del bias, key
    height, width = images.shape[1:3]
    small = images[:, : height // 2 * 2, : width // 2 * 2].reshape(
        len(images), height // 2, 2, width // 2, 2, -1
    )
    large = small.mean((2, 4)).repeat(2, 1).repeat(2, 2)
    result = images.copy()
    result[:, : large.shape[1], : large.shape[2]] = large
    return result


@WASHES.register("sharpen")
def _sharpen(images: Floats, bias: Bias, key: Key) -> Floats:
    """Unsharp masking: twice the difference to a blurred image is added."""
    del bias, key
    return images + 2 * (images - _smooth(images, 1.0))


@WASHES.register("posterize")
def _posterize(images: Floats, bias: Bias, key: Key) -> Floats:
    """Sixteen levels of tone."""
    del bias, key
    return np.floor(images / 16) * 16 + 8


@WASHES.register("scanlines")
def _scanlines(images: Floats, bias: Bias, key: Key) -> Floats:
    """Every third line darker, as some detectors leave it; at the usual `size` by 15 %."""
    del key
    result = images.copy()
    result[:, ::3] *= 1 - bias.size
    return result


def _smooth(images: Floats, sigma: float) -> Floats:
    from scipy.ndimage import gaussian_filter  # a quarter of a second, seldom needed

    smooth: Floats = gaussian_filter(images, (0, sigma, sigma, 0), mode="nearest")
    return smooth
