"""What a worker is told to do: ``Start.work``, built from the graph and from what the stages before have yielded.

Common to stages of a model: ``model``, ``variant``, ``precision``, and ``kv``: ``{id, from, tokens, sources,
transfer, patience}``, the KV cache to write, the one to continue, how many tokens that had, its copies ``{id, worker,
tier, tokens, addresses}``, best first, how it is to be fetched (``KvTransferConfig``), and the seconds that whoever
holds one may take for a message; where none can be had it is computed again from ``tokens`` in the form of
``segments``, which cover them exactly (``stage_run.Sequence``).

======================  ===========================================================================================
tokenize                ``{model, text | messages | tokens}``
prefill, re_prefill     ``{tokens, segments, append, push, keep_copy, sampling, script}``; ``append`` is what to add to
                        the sequence, ``[{role: tool, name, content} | {role: documents, documents}]``; ``push``
                        ``{worker, addresses, transfer, patience}`` is where the KV cache goes meanwhile, or null
decode                  ``{tokens, segments, generated, max_tokens, keep_copy, sampling, stop, script}``; the last
                        ``generated`` tokens are its own already
tool                    ``{name, arguments, key, timeout}``; the same ``key`` is the same call, whose result may be kept
embedding               ``{texts}``
retrieval               ``{query, vector, k, documents, key}``
rerank                  ``{query, documents}``
router, agent_decision  ``{text, calls, context}``
output                  ``{tokens, text}``
kv_store, _load, …      ``{tokens, segments, tier, keep_copy}``
======================  ===========================================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from iegopt.control.policy import ControlPolicy
from iegopt.control.request_run import RequestRun
from iegopt.control.results import Decoded, Read, Tokenized
from iegopt.control.stage_run import Sequence, StageRun
from iegopt.spec.stage import StageKind, StageSpec

__all__ = [
    "build_work", "kv_id", "kv_name", "max_tokens", "request_of", "sequence_before", "speaker_before", "stage_of",
    "transfer_of",
]  # fmt: skip

_DEFAULT_K = 4
_DEFAULT_OUTPUT = 256
_PREFILLS = (StageKind.PREFILL, StageKind.RE_PREFILL)
_FINDS = (StageKind.RETRIEVAL, StageKind.RERANK)


def kv_id(run: RequestRun, stage: str) -> str:
    """Name of the KV cache that a stage writes."""
    return kv_name(run.id, stage)


def kv_name(request_id: str, stage: str) -> str:
    """``REQUEST/STAGE``; a slash in the stage's name is written as another sign, so that the last one parts the two."""
    return f"{request_id}/{stage.replace('/', '%2F')}"


def stage_of(kv_id: str) -> str:
    """The stage in the name of a KV cache."""
    return kv_id.rpartition("/")[2].replace("%2F", "/")


def request_of(kv_id: str) -> str:
    """The request in the name of a KV cache."""
    return kv_id.rpartition("/")[0]


def build_work(
    run: RequestRun, stage: StageRun, reader: str, policy: ControlPolicy, push: dict[str, Any] | None,
    silent: frozenset[str] = frozenset(),
) -> dict[str, Any]:  # fmt: skip
    """The work of a stage for the worker called ``reader``; workers that are ``silent`` are not asked for KV."""
    spec = run.spec(stage.id)
    return _BUILDERS[stage.kind](_Task(run, stage, spec, reader, policy, push, silent))


def sequence_before(run: RequestRun, stage: StageRun) -> Sequence:
    """The tokens that a stage of a model begins with: those of the KV cache that it continues, else the prompt."""
    source = run.kv_source(stage.id)
    if source is not None and source.sequence is not None:
        return source.sequence
    for edge in run.links.into[stage.id]:
        result = run.stages[edge.source].result
        if isinstance(result, Tokenized):
            return Sequence((), ()).then("prefill", result.tokens)
    return Sequence((), ()).then("prefill", tuple(run.inputs.get("tokens", ())))


def transfer_of(run: RequestRun, policy: ControlPolicy) -> dict[str, Any]:
    """How KV caches of a request cross links: as it says itself, else by the policy."""
    return (run.request.kv_transfer_config or policy.kv_transfer).model_dump(mode="json")


def max_tokens(run: RequestRun, stage: StageRun) -> int:
    """Most tokens that a decode may have in all: its own limit, and what is left of the request's budget."""
    spec = run.spec(stage.id)
    own = spec.tokens.output if spec.tokens is not None and spec.tokens.output else _DEFAULT_OUTPUT
    left = run.request.dag_constraints.max_token_budget - (run.tokens - len(stage.emitted))
    return min(own, left)


class _Task:
    """A stage, its request, and for whom the work is."""

    def __init__(
        self, run: RequestRun, stage: StageRun, spec: StageSpec, reader: str, policy: ControlPolicy,
        push: dict[str, Any] | None, silent: frozenset[str],
    ) -> None:  # fmt: skip
        self.run, self.stage, self.spec, self.reader, self.policy, self.push = run, stage, spec, reader, policy, push
        self.silent = silent

    @property
    def before(self) -> list[StageRun]:
        """The stages before, in the order of the edges, those whose KV cache is continued left out."""
        return [self.run.stages[edge.source] for edge in self.run.links.into[self.stage.id] if not edge.kv]

    @property
    def model(self) -> dict[str, Any]:
        precision = self.spec.compute.precision
        return {
            "model": self.spec.model,
            "variant": self.stage.variant,
            "precision": str(precision) if precision is not None else None,
        }

    @property
    def kv(self) -> dict[str, Any]:
        """The KV cache to write and where the one to continue lies: this stage's own of an earlier attempt first."""
        run, book = self.run, self.run.kv
        source = run.kv_source(self.stage.id)
        own = book.sources(self.stage.id, self.reader, kv_id(run, self.stage.id), self.silent)
        others = book.sources(source.id, self.reader, kv_id(run, source.id), self.silent) if source is not None else []
        return {
            "id": kv_id(run, self.stage.id),
            "from": kv_id(run, source.id) if source is not None else None,
            "tokens": book.sizes.get(source.id, (0, 0))[0] if source is not None else 0,
            "sources": own + others,
            "transfer": transfer_of(run, self.policy),
            "patience": self.policy.kv_patience,
        }

    @property
    def generation(self) -> dict[str, Any]:
        """How tokens are chosen."""
        script = self.run.inputs.get("script")
        own = script.get(self.stage.id) if isinstance(script, dict) else None
        return {"sampling": self.run.inputs.get("sampling", {}), "script": own}


def _tokenize(task: _Task) -> dict[str, Any]:
    run, inputs = task.run, task.run.inputs
    model = task.spec.model or run.request.model or _first_model(run)
    for name in ("tokens", "messages", "text"):
        if name in inputs:
            return {"model": model, name: inputs[name]}
    return {"model": model, "text": run.request.prompt or ""}


def _first_model(run: RequestRun) -> str | None:
    return next((spec.model for spec in run.graph.stages if spec.type in _PREFILLS), None)


def _prefill(task: _Task) -> dict[str, Any]:
    sequence = sequence_before(task.run, task.stage)
    return {
        **task.model, "tokens": list(sequence.tokens), "segments": _segments(sequence), "append": _append(task),
        "kv": task.kv, "push": task.push, "keep_copy": task.policy.keep_copy, **task.generation,
    }  # fmt: skip


def _append(task: _Task) -> list[dict[str, Any]]:
    """Results of tools and retrievals on the edges that enter a prefill, to be added to its sequence."""
    added: list[dict[str, Any]] = []
    for stage in task.before:
        if not isinstance(stage.result, Read):
            continue
        if stage.kind is StageKind.TOOL:
            name = stage.call.name if stage.call is not None else stage.id
            added.append({"role": "tool", "name": name, "content": stage.result.fields["content"]})
        elif stage.kind in _FINDS:
            added.append({"role": "documents", "documents": stage.result.fields["documents"]})
    return added


def _decode(task: _Task) -> dict[str, Any]:
    stage = task.stage
    sequence = sequence_before(task.run, stage).then("decode", stage.emitted)
    return {
        **task.model, "tokens": list(sequence.tokens), "segments": _segments(sequence),
        "generated": len(stage.emitted), "max_tokens": max_tokens(task.run, stage), "kv": task.kv,
        "keep_copy": task.policy.keep_copy, "stop": task.run.inputs.get("stop", []), **task.generation,
    }  # fmt: skip


def _segments(sequence: Sequence) -> list[list[Any]]:
    return [[how, count] for how, count in sequence.segments]


def _tool(task: _Task) -> dict[str, Any]:
    call = task.stage.call
    return {
        "name": call.name if call is not None else task.stage.id,
        "arguments": call.arguments if call is not None else dict(task.run.inputs.get("arguments", {})),
        "key": f"{task.run.id}/{task.stage.id}",
        "timeout": task.policy.tool_timeout,
    }


def _embedding(task: _Task) -> dict[str, Any]:
    return {**task.model, "texts": [_query(task.run, task.stage)]}


def _retrieval(task: _Task) -> dict[str, Any]:
    vectors = [s.result.fields["vectors"] for s in task.before if isinstance(s.result, Read) and _embeds(s)]
    inputs = task.run.inputs
    return {
        "query": _query(task.run, task.stage), "vector": vectors[0][0] if vectors and vectors[0] else None,
        "k": inputs.get("k", _DEFAULT_K), "documents": inputs.get("documents"), "key": f"{task.run.id}/{task.stage.id}",
    }  # fmt: skip


def _embeds(stage: StageRun) -> bool:
    return stage.kind is StageKind.EMBEDDING


def _rerank(task: _Task) -> dict[str, Any]:
    found = [s.result.fields["documents"] for s in task.before if isinstance(s.result, Read) and s.kind in _FINDS]
    return {**task.model, "query": _query(task.run, task.stage), "documents": [d for some in found for d in some]}


def _query(run: RequestRun, stage: StageRun) -> str:
    """What is looked for: what the model asked of the retrieval, else what tools returned, else the text before."""
    if stage.call is not None and isinstance(stage.call.arguments.get("query"), str):
        return str(stage.call.arguments["query"])
    before = [run.stages[edge.source] for edge in run.links.into[stage.id]]
    contents = [s.result.fields["content"] for s in before if s.kind is StageKind.TOOL and isinstance(s.result, Read)]
    if contents:
        return "\n".join(contents)
    for source in before:
        if isinstance(source.result, Decoded):
            return source.result.text
        if source.kind in (StageKind.EMBEDDING, *_FINDS):
            return _query(run, source)
    return str(run.inputs.get("text") or run.request.prompt or "")


def _decision(task: _Task) -> dict[str, Any]:
    decoded = _text_before(task.run, task.stage)
    calls = [{"name": call.name, "arguments": call.arguments} for call in decoded.calls] if decoded else []
    return {"text": decoded.text if decoded else "", "calls": calls, "context": task.run.inputs.get("context")}


def _output(task: _Task) -> dict[str, Any]:
    decoded = _text_before(task.run, task.stage)
    model = task.spec.model or task.run.request.model or _first_model(task.run)
    return {"model": model, "tokens": list(decoded.tokens) if decoded else [], "text": decoded.text if decoded else ""}


def _text_before(run: RequestRun, stage: StageRun) -> Decoded | None:
    """The result of the nearest decode before, seen through decisions and routers."""
    name = speaker_before(run, stage)
    result = run.stages[name].result if name is not None else None
    return result if isinstance(result, Decoded) else None


def speaker_before(run: RequestRun, stage: StageRun) -> str | None:
    """The decode that what comes into a stage goes back to: along the first edge that has one."""
    for edge in run.links.into[stage.id]:
        source = run.stages[edge.source]
        name = source.id if isinstance(source.result, Decoded) else source.speaker
        if name is not None:
            return name
    return None


def _kv_stage(task: _Task) -> dict[str, Any]:
    tier = {StageKind.KV_STORE: "L1", StageKind.KV_LOAD: "L0", StageKind.KV_MIGRATE: "L0"}[task.stage.kind]
    sequence = sequence_before(task.run, task.stage)
    return {
        **task.model, "tokens": list(sequence.tokens), "segments": _segments(sequence), "kv": task.kv, "tier": tier,
        "keep_copy": task.policy.keep_copy,
    }  # fmt: skip


_BUILDERS: dict[StageKind, Callable[[_Task], dict[str, Any]]] = {
    StageKind.TOKENIZE: _tokenize,
    StageKind.PREFILL: _prefill,
    StageKind.RE_PREFILL: _prefill,
    StageKind.DECODE: _decode,
    StageKind.TOOL: _tool,
    StageKind.EMBEDDING: _embedding,
    StageKind.RETRIEVAL: _retrieval,
    StageKind.RERANK: _rerank,
    StageKind.ROUTER: _decision,
    StageKind.AGENT_DECISION: _decision,
    StageKind.OUTPUT: _output,
    StageKind.KV_STORE: _kv_stage,
    StageKind.KV_LOAD: _kv_stage,
    StageKind.KV_MIGRATE: _kv_stage,
}
