"""Embeddings and rerank scores from a causal model, one text a step."""

from __future__ import annotations

import torch

from iegopt_runtime.errors import ModelError
from iegopt_runtime.lm.jobs import Embed, Rerank, Vectors
from iegopt_runtime.lm.model_host import LoadedModel

__all__ = ["Scoring"]


class Scoring:
    """A running ``Embed`` or ``Rerank``; it keeps no KV."""

    def __init__(self, job: Embed | Rerank, loaded: LoadedModel, device: torch.device) -> None:
        self.job = job
        self.loaded = loaded
        self._device = device
        self._rows: list[tuple[float, ...]] = []
        self._read = 0
        self._left = list(reversed(job.texts if isinstance(job, Embed) else job.documents))

    def step(self) -> bool:
        """One text. True after the last."""
        if self._left:
            text = self._left.pop()
            self._rows.append(self._embed(text) if isinstance(self.job, Embed) else self._score(text, self.job.query))
        return not self._left

    def vectors(self) -> Vectors:
        return Vectors(self.job.job_id, tuple(self._rows), self._read)

    def close(self) -> None:
        self.loaded.users -= 1

    def _embed(self, text: str) -> tuple[float, ...]:
        states = self.loaded.hidden(self._ids(text))
        return tuple(float(x) for x in states.float().mean(0).cpu())

    def _score(self, document: str, query: str) -> tuple[float, ...]:
        read = self._ids(f"{document}\n{query}")
        asked = len(self.loaded.tokenizer.encode(query))
        scores = self.loaded.logits(read)[-asked - 1 : -1].float().log_softmax(-1)
        wanted = read[0, -asked:]
        return (float(scores.gather(-1, wanted.unsqueeze(-1)).mean()),)

    def _ids(self, text: str) -> torch.Tensor:
        tokens = self.loaded.tokenizer.encode(text)
        if not tokens or len(tokens) > self.loaded.context:
            raise ModelError(
                f"{self.job.job_id}: a text of {len(tokens)} tokens: expected 1 to {self.loaded.context}"
            )  # fmt: skip
        self._read += len(tokens)
        return torch.tensor([tokens], device=self._device)
