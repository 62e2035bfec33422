"""The requests of a snapshot that wait, as a verifier reads them: what they ask, what is left of their limits, and
which prefix of their prompts an instance holds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from iegopt import library
from iegopt.cost.demand import activation_bytes
from iegopt.cost.transfer import compression_ratio
from iegopt.errors import InputError
from iegopt.spec.llm import LlmCard
from iegopt.spec.policy import KvTransferConfig
from iegopt.spec.request import AgentConfig
from iegopt.spec.snapshot import InstanceState, QueuedSpec, RunningSpec, SnapshotSpec, UtilityClass
from iegopt.spec.stage import SIXTEEN_BIT, Precision
from iegopt.verify.engine import Engine

__all__ = ["CALL_TOKENS", "Blocks", "Waiting", "waiting_of"]

CALL_TOKENS = 128
"""Tokens of a tool call: what an agent decodes before its next round."""


@dataclass(frozen=True, eq=False)
class Waiting:
    """A queued request, or a running stage of a lost instance that waits again.

    Attributes
    ----------
    card
        ``None`` where no card describes its model.
    output
        Tokens of the present round.
    e2e
        What is left, the least time of tools and later rounds taken off.
    kept
        Instance whose host keeps its KV cache, and for how many tokens.
    """

    id: str
    tenant: str
    priority: int
    weight: float
    throughput: bool
    card: LlmCard | None
    precisions: frozenset[Precision]
    prompt: int
    output: int
    sequences: int
    ttft: float
    e2e: float
    itl: float
    prefix: tuple[int, ...]
    kept: tuple[str, int] | None
    ratio: float

    def runs_on(self, engine: Engine) -> bool:
        return self.card is not None and engine.card.name == self.card.name and engine.precision in self.precisions

    @cached_property
    def kv_per_token(self) -> float:
        """Bytes of KV cache of a token of all sequences."""
        assert self.card is not None
        return self.card.kv_bytes_per_token() * self.sequences

    @cached_property
    def kv_prompt(self) -> int:
        return math.ceil(self.kv_per_token * self.prompt)

    @cached_property
    def kv_full(self) -> int:
        """With the working memory of the decode."""
        assert self.card is not None
        working = activation_bytes(self.card, 1) * self.sequences
        return math.ceil(self.kv_per_token * (self.prompt + self.output) + working)

    @cached_property
    def wire(self) -> int:
        """Bytes on a link when the prompt's KV cache moves."""
        return math.ceil(self.kv_per_token * self.ratio * self.prompt)


def waiting_of(
    snapshot: SnapshotSpec, engines: Mapping[str, Engine], lost: Mapping[str, tuple[LlmCard, Precision]],
    config: KvTransferConfig | None, count_tokens: Callable[[str], int],
) -> Iterator[Waiting]:  # fmt: skip
    """Those of the queue, then those that a lost instance ran; ``lost`` says what that was."""
    gone = {spec.id for spec in snapshot.instances if spec.state is InstanceState.LOST}
    for queued in snapshot.queue:
        yield _queued(queued, snapshot.time, engines, gone, config, count_tokens)
    for running in snapshot.running:
        if running.instance in gone:
            yield _again(running, snapshot.time, *lost[running.instance], config)


def _queued(
    queued: QueuedSpec, now: float, engines: Mapping[str, Engine], gone: set[str], config: KvTransferConfig | None,
    count_tokens: Callable[[str], int],
) -> Waiting:  # fmt: skip
    request, waited = queued.request, now - queued.arrival
    assert request.model is not None
    assert request.output_tokens is not None
    try:
        card: LlmCard | None = library.llm(request.model)
    except InputError:
        card = None
    prompt = request.prompt_tokens if request.prompt_tokens is not None else count_tokens(str(request.prompt))
    rounds = _rounds(request.agent)
    precisions = _precisions(card, request.precision) if card is not None else frozenset()
    later = 0.0
    if rounds and card is not None and request.agent is not None:
        able = [e for e in engines.values() if e.card.name == card.name and e.precision in precisions]
        later = _later(request.agent, rounds, prompt, request.output_tokens, request.batch, able)
    return Waiting(
        id=queued.id,
        tenant=queued.tenant,
        priority=queued.level,
        weight=queued.utility.weight,
        throughput=queued.utility_class is UtilityClass.THROUGHPUT,
        card=card,
        precisions=precisions,
        prompt=prompt,
        output=min(request.output_tokens, CALL_TOKENS) if rounds else request.output_tokens,
        sequences=request.batch,
        ttft=_left(request.sla.ttft, waited),
        e2e=_left(request.sla.e2e, waited) - later,
        itl=_left(request.sla.itl, 0.0),
        prefix=queued.prefix,
        kept=None if queued.held_on is None or queued.held_on in gone else (queued.held_on, queued.held_kv),
        ratio=compression_ratio(config, True, card.kv_precision) if card is not None else 1.0,
    )


def _again(
    running: RunningSpec, now: float, card: LlmCard, precision: Precision, config: KvTransferConfig | None
) -> Waiting:
    """All that it held is prefilled again; of a decode the first token is out."""
    decodes = running.stage == "decode"
    waited = 0.0 if running.arrival is None else now - running.arrival
    return Waiting(
        id=running.id,
        tenant=running.tenant,
        priority=running.priority,
        weight=running.utility.weight,
        throughput=running.utility_class is UtilityClass.THROUGHPUT,
        card=card,
        precisions=frozenset({precision}),
        prompt=max(1, running.context + (0 if decodes else running.remaining)),
        output=running.remaining if decodes else running.output,
        sequences=running.sequences,
        ttft=math.inf if decodes else _left(running.sla.ttft, waited),
        e2e=_left(running.sla.e2e, waited),
        itl=_left(running.sla.itl, 0.0),
        prefix=(),
        kept=None,
        ratio=compression_ratio(config, True, card.kv_precision),
    )


def _precisions(card: LlmCard, asked: Precision | None) -> frozenset[Precision]:
    if asked is not None:
        return frozenset({asked})
    return SIXTEEN_BIT if card.native_precision in SIXTEEN_BIT else frozenset({card.native_precision})


def _rounds(agent: AgentConfig | None) -> int:
    return agent.lookahead if agent is not None and (agent.tools or agent.retrieval is not None) else 0


def _later(agent: AgentConfig, rounds: int, prompt: int, output: int, sequences: int, able: list[Engine]) -> float:
    """Least seconds of the tools and of the later rounds, each part alone where it is fastest."""
    costs = {id(engine.costs): engine.costs for engine in able}.values()
    results = sum(tool.result_tokens for tool in agent.tools)
    results += agent.retrieval.result_tokens if agent.retrieval is not None else 0
    call = min(output, CALL_TOKENS)
    held, total = prompt + call, 0.0
    for number in range(rounds):
        new, steps = max(1, results), output if number == rounds - 1 else call
        total += max((tool.latency for tool in agent.tools), default=0.0)
        total += min((cost.prefill(held + new, held, sequences) for cost in costs), default=math.inf)
        each = []
        for cost in costs:
            a, b = cost.step(sequences, held + new, steps)
            each.append(max(cost.base[0] + a, cost.base[1] + b))
        total += steps * min(each, default=math.inf)
        held += results + call
    return total


def _left(limit: float | None, waited: float) -> float:
    return math.inf if limit is None else limit - waited


class Blocks:
    """Which leading blocks of a prompt an instance holds."""

    def __init__(self, engines: Mapping[str, Engine], size: int) -> None:
        self.size = size
        self._of = {name: self._places(engine) for name, engine in engines.items()}
        self._engines = engines

    @staticmethod
    def _places(engine: Engine) -> dict[int, float]:
        """Block -> seconds per byte to read it; those that are slower to read than to compute are left out."""
        found = dict.fromkeys(engine.spec.prefix, 0.0)
        compute = 2.0 * engine.card.active / (engine.costs.gang.flops * engine.costs.efficiency)
        rates = {"host": engine.host, "disk": engine.disk}
        for tier in engine.spec.tiers:
            if rates[tier.tier] * engine.card.kv_bytes_per_token() >= compute:
                continue
            for block in tier.blocks:
                found[block] = min(found.get(block, math.inf), rates[tier.tier])
        return found

    def held(self, request: Waiting, name: str) -> tuple[int, float]:
        """Tokens of the prompt that an instance holds, its last one never, and seconds per byte to read them."""
        engine, places = self._engines[name], self._of[name]
        if request.card is None or engine.card.name != request.card.name:
            return 0, 0.0
        rates: list[float] = []
        for block in request.prefix:
            if block not in places:
                break
            rates.append(places[block])
        tokens, rate = len(rates) * self.size, sum(rates) / len(rates) if rates else 0.0
        if request.kept is not None and request.kept[0] == name and request.kept[1] > tokens:
            tokens, rate = request.kept[1], engine.host
        return min(tokens, request.prompt - 1), rate
