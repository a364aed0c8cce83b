"""Layers of images, by the keys of the steps that make them."""

from dataclasses import dataclass

KEY_DIGITS = 32
"""Digits of keys in committed files."""


@dataclass(frozen=True, slots=True)
class ImageLayer:
    """A layer above the base of an image, by the key of the step that makes it."""

    key: str
    """The first `KEY_DIGITS` of the key; empty for training code, which committed keys do not cover."""
    is_pinned: bool = True
    """False if the step, or one below it, reads what nothing pins: then the key does not tell its result."""
    stages: tuple[str, ...] = ()
    """The stages with steps that it builds on, the one that it is a copy of first."""
