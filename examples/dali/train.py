"""Train on JPEGs that NVIDIA DALI decodes and resizes, on the GPU if there is one.

The channel `training` has a directory of JPEGs for each class. Without it, the script creates two classes.
"""

import argparse
import os
import tempfile
from pathlib import Path

import numpy
import torch
from nvidia import nvimgcodec
from nvidia.dali import fn, pipeline_def, types
from nvidia.dali.plugin.pytorch import DALIGenericIterator

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--batch", type=int, default=8)
parser.add_argument("--training", default=os.environ.get("SM_CHANNEL_TRAINING"))
arguments, _ = parser.parse_known_args()

use_gpu = torch.cuda.is_available()
device = torch.device("cuda" if use_gpu else "cpu")


def create_images(directory):
    """Create dark and bright images of different sizes."""
    random = numpy.random.default_rng(0)
    encoder = nvimgcodec.Encoder(device_id=0 if use_gpu else nvimgcodec.NVIMGCODEC_DEVICE_CPU_ONLY)
    for name, lowest in (("bright", 128), ("dark", 0)):
        Path(directory, name).mkdir()
        for number in range(16):
            pixels = random.integers(lowest, lowest + 128, (48 + number, 64 + number, 3), numpy.uint8)
            encoder.write(str(Path(directory, name, f"{number}.jpg")), pixels)
    return directory


@pipeline_def(batch_size=arguments.batch, num_threads=2, device_id=0 if use_gpu else None)
def images(directory):
    """Return batches of images (3 x 32 x 32) and class numbers."""
    jpegs, classes = fn.readers.file(file_root=directory, random_shuffle=True, name="files")
    decoded = fn.decoders.image(jpegs, device="mixed" if use_gpu else "cpu", output_type=types.RGB)
    resized = fn.resize(decoded, resize_x=32, resize_y=32)
    half = [127.5] * 3
    return fn.crop_mirror_normalize(resized, output_layout="CHW", mean=half, std=half), classes


with tempfile.TemporaryDirectory() as temporary:
    directory = arguments.training or create_images(temporary)
    pipeline = images(directory)
    batches = DALIGenericIterator(pipeline, ["images", "classes"], reader_name="files", auto_reset=True)
    count = len([*Path(directory).iterdir()])
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, count)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(arguments.epochs):
        seen = right = 0
        for [batch] in batches:
            classes = batch["classes"].squeeze(1).long().to(device)
            predictions = model(batch["images"])
            loss = torch.nn.functional.cross_entropy(predictions, classes)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += len(classes)
            right += int((predictions.argmax(dim=1) == classes).sum())

print(f"decoded {seen} JPEGs an epoch on the {device.type.upper()}, {right} classified correctly", flush=True)
torch.save(model.state_dict(), Path(os.environ["SM_MODEL_DIR"], "model.pt"))
