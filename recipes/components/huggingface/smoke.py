"""Checks of Hugging Face's libraries, without the Hub and on the CPU."""

from __future__ import annotations

import os
import tempfile
from importlib.metadata import version
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
LIBRARIES = ("transformers", "accelerate", "datasets", "peft", "trl", "evaluate")


def installed() -> str:
    return version("transformers")


def provided() -> dict[str, str]:
    return {name: version(name) for name in LIBRARIES}


def check_fine_tunes_an_adapter() -> None:
    """SFTTrainer of trl trains a LoRA adapter of peft on a dataset, and writes its loss for TensorBoard."""
    from datasets import Dataset
    from peft import LoraConfig
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
    from trl import SFTConfig, SFTTrainer

    vocabulary = {name: number for number, name in enumerate(["[PAD]", "[UNK]", "[EOS]", *"0123456789+="])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    config = LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=32,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=2,
    )
    with tempfile.TemporaryDirectory() as directory:
        trainer = SFTTrainer(
            model=LlamaForCausalLM(config),
            args=SFTConfig(
                output_dir=directory,
                max_steps=2,
                use_cpu=True,
                bf16=False,
                save_strategy="no",
                report_to="tensorboard",
                logging_steps=1,
                disable_tqdm=True,
                max_length=16,
            ),
            train_dataset=Dataset.from_list([{"text": f"{n}+{n}={n + n}"} for n in range(5)] * 4),
            processing_class=PreTrainedTokenizerFast(
                tokenizer_object=tokenizer, pad_token="[PAD]", eos_token="[EOS]", unk_token="[UNK]"
            ),
            peft_config=LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM"),
        )
        loss = trainer.train().training_loss
        events = [str(path.parent) for path in Path(directory).rglob("events.out.tfevents.*")]
        scalars = EventAccumulator(events[0]).Reload().Tags()["scalars"] if events else []
    assert 0 < loss < 100, loss
    assert "train/loss" in scalars, f"scalars for TensorBoard: {scalars}"


def check_computes_a_metric() -> None:
    """evaluate gathers predictions; its published metrics come from the Hub."""
    from datasets import Features, Value
    from evaluate import EvaluationModuleInfo, Metric

    class Accuracy(Metric):
        def _info(self) -> EvaluationModuleInfo:
            features = Features({"predictions": Value("int32"), "references": Value("int32")})
            return EvaluationModuleInfo(description="", citation="", features=features)

        def _compute(self, predictions: list[int], references: list[int]) -> dict[str, float]:
            return {"accuracy": sum(map(int.__eq__, predictions, references)) / len(references)}

    with tempfile.TemporaryDirectory() as directory:
        result = Accuracy(cache_dir=directory).compute(predictions=[1, 2], references=[1, 3])
    assert result == {"accuracy": 0.5}, result
