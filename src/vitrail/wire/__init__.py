"""The wire: a header and named tensors as bytes. No code in data, sizes bounded, digest checked."""

from vitrail.wire.codec import WireError, decode, encode

__all__ = ["WireError", "decode", "encode"]
