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


def wanted_blocks(job: Generate, new_chain: Callable[[], Chain], held: int | None = None) -> tuple[Block, ...]:
    """The blocks that would spare this job work, in order: what a worker asks others for before it begins.

    Parameters
    ----------
    held
        How many of the first tokens those others have KV of, as far as that is known: the last of their blocks may be
        shorter than one that covers all of the history.
    """
    chain = new_chain()
    ends = passes(job.segments or known_segments(job), chain.block_tokens)
    if held is not None:
        ends = [end for end in ends if end <= held]
    chain.follow(job.tokens, ends)
    return chain.blocks() if job.segments or held is not None else tuple(chain.full)


def make_plan(job: Generate, new_chain: Callable[[], Chain], match: Callable[[Sequence[Block]], int]) -> Plan:
    """Begin after the longest run of held blocks, but make the last pass in any case: its logits are needed.

    KV may have been kept after any pass, inside a block too: a prefill ends where the prompt does, and of what was
    decoded the last token has none.

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
    held = whole.full[: match(whole.full)]
    inside = _inside(job, new_chain(), ends, held[-1].end if held else 0)
    held += [block for block in reversed(inside) if match((block,))][:1]
    reused = min(held[-1].end, limit) if held else 0
    before, after = split(segments, reused)
    if job.recompute == "fast" and length(job.segments) > reused:
        segments = before + fast(after)
        ends = passes(segments, whole.block_tokens)
    blocks = tuple(block for block in held if block.begin < reused)
    return Plan(segments, tuple(end for end in ends if end > reused), reused, blocks)


def _inside(job: Generate, chain: Chain, ends: Sequence[int], begin: int) -> tuple[Block, ...]:
    """What may be held of the block at ``begin`` where the whole of it is not, the shortest first."""
    chain.follow(job.tokens, [end for end in ends if end <= begin])
    return chain.continue_inside(job.tokens, [end for end in ends if end > begin])
