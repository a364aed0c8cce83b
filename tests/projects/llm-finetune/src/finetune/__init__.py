"""Fine-tuning of causal language models."""
