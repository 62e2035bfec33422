"""Which forward passes a sequence needs, and how much of its KV may come from blocks that are held already."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from iegopt_runtime.errors import ModelError
from iegopt_runtime.kv.blocks import Block, Chain
from iegopt_runtime.kv.history import Segment, appended, fast, length, passes, split
from iegopt_runtime.lm.jobs import Generate

__all__ = ["Plan", "make_plan", "wanted_blocks"]


@dataclass(frozen=True)
class Plan:
    """``segments`` of all known tokens; ``ends`` of the passes still to be made; ``reused`` tokens of KV come from
    ``blocks``, the last of which may reach beyond them."""

    segments: tuple[Segment, ...]
    ends: tuple[int, ...]
    reused: int
    blocks: tuple[Block, ...]


def known_segments(job: Generate) -> tuple[Segment, ...]:
    """The history of every known token: what the job says, then prompt in chunks, then output one by one.

    Raises
    ------
    ModelError
        The segments cover more tokens than there are.
    """
    covered, prompt = length(job.segments), len(job.tokens) - job.generated
    if covered > len(job.tokens) or not 0 <= job.generated <= len(job.tokens):
        raise ModelError(
            f"{job.job_id}: segments of {covered} tokens and {job.generated} generated, of {len(job.tokens)}"
        )
    segments = appended(job.segments, "prefill", max(0, prompt - covered))
    return appended(segments, "decode", len(job.tokens) - max(prompt, covered))


def wanted_blocks(job: Generate, new_chain: Callable[[], Chain]) -> tuple[Block, ...]:
    """The blocks that would spare this job work, in order: what a worker asks others for before it begins."""
    chain = new_chain()
    chain.follow(job.tokens, passes(job.segments or known_segments(job), chain.block_tokens))
    return chain.blocks() if job.segments else tuple(chain.full)


def make_plan(job: Generate, new_chain: Callable[[], Chain], match: Callable[[Sequence[Block]], int]) -> Plan:
    """Begin after the longest run of held blocks, but make the last pass in any case: its logits are needed.

    Parameters
    ----------
    match
        How many of the first blocks are held.
    """
    segments = known_segments(job)
    whole = new_chain()
    ends = passes(segments, whole.block_tokens)
    whole.follow(job.tokens, ends)
    begins = [0, *ends[:-1]]
    limit = begins[-1] if job.max_tokens else len(job.tokens)
    best: tuple[int, tuple[Block, ...]] = (0, ())
    for blocks in (whole.blocks(), wanted_blocks(job, new_chain)):
        held = blocks[: match(blocks)]
        reach = min(held[-1].end, limit) if held else 0
        if reach > best[0]:
            best = (reach, tuple(block for block in held if block.begin < reach))
    reused = best[0]
    before, after = split(segments, reused)
    if job.recompute == "fast" and length(job.segments) > reused:
        segments = before + fast(after)
        ends = passes(segments, whole.block_tokens)
    return Plan(segments, tuple(end for end in ends if end > reused), reused, best[1])
