"""Checks of NVIDIA NeMo, on the CPU and on sound that they make."""

from __future__ import annotations

import json
import math
import tempfile
import wave
from array import array
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

RATE = 16_000
LABELS = [" ", "a", "b"]
MODEL = {
    "sample_rate": RATE,
    "labels": LABELS,
    "preprocessor": {
        "_target_": "nemo.collections.asr.modules.AudioToMelSpectrogramPreprocessor",
        "sample_rate": RATE,
        "features": 16,
        "dither": 0.0,
    },
    "encoder": {
        "_target_": "nemo.collections.asr.modules.ConvASREncoder",
        "feat_in": 16,
        "activation": "relu",
        "conv_mask": True,
        "jasper": [
            {
                "filters": 8,
                "repeat": 1,
                "kernel": [3],
                "stride": [2],
                "dilation": [1],
                "dropout": 0.0,
                "residual": False,
                "separable": True,
            }
        ],
    },
    "decoder": {
        "_target_": "nemo.collections.asr.modules.ConvASRDecoder",
        "feat_in": 8,
        "num_classes": len(LABELS),
        "vocabulary": LABELS,
    },
    "optim": {"name": "adam", "lr": 0.01},
}


def installed() -> str:
    return version("nemo-toolkit")


def check_collections_are_importable() -> None:
    for name in ("asr", "audio", "common", "tts"):
        import_module(f"nemo.collections.{name}")


def check_trains_and_restores_a_speech_recognizer() -> None:
    """Lightning trains it on sine waves; the restored model transcribes one of them."""
    from lightning.pytorch import Trainer
    from nemo.collections.asr.models import EncDecCTCModel
    from omegaconf import OmegaConf

    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        waves = [_sine_wave(directory / f"{number}.wav", 220 * (1 + number % 2)) for number in range(8)]
        rows = [
            {"audio_filepath": str(path), "duration": 1.0, "text": "ab"[number % 2]}
            for number, path in enumerate(waves)
        ]
        manifest = directory / "train.json"
        manifest.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        data = {"manifest_filepath": str(manifest), "sample_rate": RATE, "labels": LABELS, "batch_size": 4}
        trainer = Trainer(
            accelerator="cpu",
            devices=1,
            max_steps=2,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
        )
        config = OmegaConf.create({**MODEL, "train_ds": {**data, "shuffle": False, "num_workers": 0}})
        model = EncDecCTCModel(cfg=config, trainer=trainer)
        trainer.fit(model)
        loss = float(trainer.callback_metrics["train_loss"])
        assert trainer.global_step == 2, trainer.global_step
        assert 0 < loss < 1000, loss
        model.save_to(directory / "model.nemo")
        restored = EncDecCTCModel.restore_from(directory / "model.nemo", map_location="cpu")
        [hypothesis] = restored.transcribe([str(waves[0])], batch_size=1, num_workers=0, verbose=False)
    assert set(hypothesis.text) <= set(LABELS), hypothesis


def _sine_wave(path: Path, frequency: int) -> Path:
    samples = array("h", (int(8000 * math.sin(2 * math.pi * frequency * n / RATE)) for n in range(RATE)))
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(samples.tobytes())
    return path
