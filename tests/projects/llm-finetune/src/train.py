"""Fine-tune a causal language model on the ranks that torchrun started."""

import argparse
import json
import os
from pathlib import Path

import torch
from finetune import data, model
from transformers import DataCollatorForLanguageModeling, Trainer, TrainingArguments


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=float, default=2)
    parser.add_argument("--learning-rate", type=float, default=1e-2)
    parser.add_argument("--length", type=int, default=32)
    options, _ = parser.parse_known_args()
    torch.manual_seed(0)
    network, tokenizer = model.load(channel("model"))
    rows = data.load(channel("training"), tokenizer, options.length)
    trainer = Trainer(
        model=network,
        args=TrainingArguments(
            output_dir="/tmp/checkpoints",
            num_train_epochs=options.epochs,
            learning_rate=options.learning_rate,
            per_device_train_batch_size=8,
            use_cpu=not torch.cuda.is_available(),
            save_strategy="no",
            logging_steps=4,
            report_to=[],
            disable_tqdm=True,
        ),
        train_dataset=rows,
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
    )
    result = trainer.train()
    if trainer.is_world_process_zero():
        to = Path(os.environ["SM_MODEL_DIR"])
        network.save_pretrained(to)
        tokenizer.save_pretrained(to)
        report = {"loss": result.training_loss, "world_size": trainer.accelerator.num_processes}
        (to / "metrics.json").write_text(json.dumps(report))
        print(f"trained on {report['world_size']} ranks, loss {report['loss']:.3f}", flush=True)


def channel(name: str) -> Path:
    """Return the directory of a data channel of the job, which may be missing."""
    return Path(os.environ.get(f"SM_CHANNEL_{name.upper()}", f"/opt/ml/input/data/{name}"))


if __name__ == "__main__":
    main()
