"""Run the TensorFlow example as a rank of Horovod, and print the labels of its images in one epoch.

Each image of the channel has a class of its own.
"""

import json
import os
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf  # type: ignore[import-untyped]

folder, model = Path("/tmp/images"), Path("/tmp/model")
for number in range(6):
    (folder / f"class-{number}").mkdir(parents=True)
    pixels = tf.zeros((40, 40, 3), tf.uint8)
    tf.io.write_file(f"{folder}/class-{number}/image.jpg", tf.io.encode_jpeg(pixels))
model.mkdir()
config = Path("/opt/ml/input/config")
config.mkdir(parents=True, exist_ok=True)
hosts = {"current_host": "localhost", "hosts": ["localhost"], "network_interface_name": "lo"}
for name, content in (("resource", hosts), ("inputdata", {})):
    (config / f"{name}config.json").write_text(json.dumps(content))
(config / "hyperparameters.json").write_text("{}")
os.environ |= {"OMPI_COMM_WORLD_RANK": os.environ["RANK"], "SM_MODEL_DIR": str(model)}
os.environ["SM_CHANNEL_TRAINING"] = str(folder)
sys.argv[1:] = [*("--steps", "1", "--warmup", "0", "--batch", "3", "--size", "32"), "--model", "MobileNet"]
sys.path.insert(0, "/examples/heterogeneous")
example: dict[str, Any] = runpy.run_path("/examples/heterogeneous/train_tensorflow.py")
load_images: Callable[[], Any] = example["load_images"]
[(_, labels)] = load_images()[0].take(1)
print("labels", sorted(labels.numpy().tolist()), sorted(path.name for path in model.iterdir()))
