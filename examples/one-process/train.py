"""Fit a line in one process. Shows the locations of data, settings and model."""

import argparse
import json
import os
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=200)
parser.add_argument("--learning-rate", type=float, default=0.05)
parser.add_argument("--training", default=os.environ.get("SM_CHANNEL_TRAINING"))
parser.add_argument("--model-dir", default=os.environ["SM_MODEL_DIR"])
arguments = parser.parse_args()

points = [(x, 2.0 * x + 1.0) for x in range(5)]
if arguments.training:
    points = [tuple(point) for point in json.loads(Path(arguments.training, "points.json").read_text())]

slope = offset = 0.0
for _ in range(arguments.epochs):
    errors = [(slope * x + offset - y, x) for x, y in points]
    slope -= arguments.learning_rate * sum(error * x for error, x in errors) / len(points)
    offset -= arguments.learning_rate * sum(error for error, _ in errors) / len(points)
loss = sum((slope * x + offset - y) ** 2 for x, y in points) / len(points)
print(f"y = {slope:.2f} x + {offset:.2f}, loss {loss:.4f}")

Path(arguments.model_dir, "line.json").write_text(json.dumps({"slope": slope, "offset": offset}))
