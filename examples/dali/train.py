"""Decodes and resizes JPEGs with NVIDIA DALI: on the GPU where there is one, on the CPU elsewhere.

The channel `training` has a folder of JPEGs for each class; without it, two classes are made up.
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


def made(folder):
    """Dark and bright noise, each image of a size of its own."""
    random = numpy.random.default_rng(0)
    encoder = nvimgcodec.Encoder(device_id=0 if use_gpu else nvimgcodec.NVIMGCODEC_DEVICE_CPU_ONLY)
    for name, lowest in (("bright", 128), ("dark", 0)):
        Path(folder, name).mkdir()
        for number in range(16):
            pixels = random.integers(lowest, lowest + 128, (48 + number, 64 + number, 3), numpy.uint8)
            encoder.write(str(Path(folder, name, f"{number}.jpg")), pixels)
    return folder


@pipeline_def(batch_size=arguments.batch, num_threads=2, device_id=0 if use_gpu else None)
def images(folder):
    """Batches of images, 3 by 32 by 32, and the numbers of their classes."""
    jpegs, classes = fn.readers.file(file_root=folder, random_shuffle=True, name="files")
    decoded = fn.decoders.image(jpegs, device="mixed" if use_gpu else "cpu", output_type=types.RGB)
    resized = fn.resize(decoded, resize_x=32, resize_y=32)
    half = [127.5] * 3
    return fn.crop_mirror_normalize(resized, output_layout="CHW", mean=half, std=half), classes


with tempfile.TemporaryDirectory() as scratch:
    folder = arguments.training or made(scratch)
    batches = DALIGenericIterator(images(folder), ["images", "classes"], reader_name="files", auto_reset=True)
    count = len([*Path(folder).iterdir()])
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, count)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(arguments.epochs):
        seen = right = 0
        for [batch] in batches:
            classes = batch["classes"].squeeze(1).long().to(device)
            answers = model(batch["images"])
            loss = torch.nn.functional.cross_entropy(answers, classes)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += len(classes)
            right += int((answers.argmax(dim=1) == classes).sum())

print(f"decoded {seen} JPEGs an epoch on the {device.type.upper()}, {right} of them told apart", flush=True)
torch.save(model.state_dict(), Path(os.environ["SM_MODEL_DIR"], "model.pt"))
