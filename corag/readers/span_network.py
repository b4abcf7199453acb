"""The network of `minilm-reader`: an encoder and one linear layer; imports torch."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from corag.readers.span_reader import NUM_OUTPUTS


class SpanNetwork(nn.Module):  # type: ignore[misc]
    """A BERT encoder without pooler, and logits of a span's start and end and of the kind of answer for each token."""

    def __init__(self, encoder: Any, num_outputs: int = NUM_OUTPUTS) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = nn.Linear(encoder.config.hidden_size, num_outputs)

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, token_type_ids: torch.Tensor
    ) -> tuple[torch.Tensor]:
        """Return the logits, `[B, L, num_outputs]`; those of the kind count only at [CLS]."""
        states = self.encoder(
            input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids
        ).last_hidden_state
        return (self.head(states),)
