"""Train a classifier on JPEGs that DALI decodes: those of a channel, or random ones."""

import os
import tempfile
from pathlib import Path

import numpy
import torch
import vision_ops
from nvidia.dali import fn, pipeline_def, types
from nvidia.dali.plugin.pytorch import DALIGenericIterator
from PIL import Image

BATCH = 8


def create_images(directory):
    """Create dark and bright images of different sizes."""
    random = numpy.random.default_rng(0)
    for name, lowest in (("bright", 128), ("dark", 0)):
        Path(directory, name).mkdir()
        for number in range(BATCH):
            pixels = random.integers(lowest, lowest + 128, (48 + number, 64 + number, 3), numpy.uint8)
            Image.fromarray(pixels).save(Path(directory, name, f"{number}.jpg"))
    return directory


@pipeline_def(batch_size=BATCH, num_threads=2, device_id=None)
def images(directory):
    """Return batches of images (32 x 32 x 3) and class numbers."""
    jpegs, classes = fn.readers.file(file_root=directory, random_shuffle=True, name="files")
    decoded = fn.decoders.image(jpegs, device="cpu", output_type=types.RGB)
    return fn.resize(decoded, resize_x=32, resize_y=32), classes


with tempfile.TemporaryDirectory() as temporary:
    directory = os.environ.get("SM_CHANNEL_TRAINING") or create_images(temporary)
    batches = DALIGenericIterator(images(directory), ["images", "classes"], reader_name="files")
    count = len([*Path(directory).iterdir()])
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, count))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for [batch] in batches:
        predictions = model(batch["images"] / 127.5 - 1)
        loss = torch.nn.functional.cross_entropy(predictions, batch["classes"].squeeze(1).long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

brightness = vision_ops.brightness(batch["images"].numpy().tobytes())
print(f"brightness {brightness:.1f}, loss {loss.item():.3f}", flush=True)
torch.save(model.state_dict(), Path(os.environ["SM_MODEL_DIR"], "model.pt"))
