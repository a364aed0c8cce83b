"""Train a ranking model."""

import einops
import torch

scores = einops.rearrange(torch.arange(6.0), "(query document) -> query document", query=2)
print(
    f"loss {torch.nn.functional.margin_ranking_loss(scores[0], scores[1], -torch.ones(3)).item():.3f}",
    flush=True,
)
