"""Rows of layers that tests pretend to know."""

from hashlib import sha256

from bakehouse.evidence.step_layers import Rows, StepLayer
from bakehouse.plan.image_layer import KEY_DIGITS
from bakehouse.plan.model import Image


def made(image: Image, *stubs: str, run: str = "") -> Rows:
    """Return rows of all layers of an image and of its content; another `run` gives other bytes."""
    keys = [layer.key for layer in image.layer_keys if layer.key]
    if stubs:
        return frozenset(StepLayer(key, image.platform, stubs=stubs) for key in keys)
    keys.append(image.recipe_key[:KEY_DIGITS])
    return frozenset(StepLayer(key, image.platform, digest(f"{key}{run}")) for key in keys)


def digest(text: str) -> str:
    return f"sha256:{sha256(text.encode()).hexdigest()}"
