# pyright: basic
"""Sampling with vLLM's offline engine, inside a worker process.

lpfloop steps vLLM's engine itself: it admits batches while there is room and returns each as soon
as it is complete, so the caller can commit while the rest is drawn. Every request carries its own
seed. On a CPU its noise comes from the lower 32 bits of that seed (PyTorch's CPU generator reads no
more).

On a CPU with one thread (`cpu_threads: 1`) the same seeds give the same tokens and the same bits of
their log-probabilities, whatever else is in flight; with more threads those bits can move. On a GPU
results depend on the batch unless VLLM_BATCH_INVARIANT=1 is set (see vLLM's reproducibility page).
"""

import json
import math
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from ...configs.schema import EngineConfig
from ...stores.keys import Json
from ...stores.records import Message
from ..devices import cpu_type
from .chat import ChatTokenizer
from .chat_template import template_text
from .engine import (
    AnswerLogprob,
    Batch,
    BatchResult,
    Completion,
    EngineError,
    take,
)
from .thinking import ChatForm, Thinking

AHEAD = 2
"""Admitted requests, as a multiple of those that run concurrently: refilling needs no pause."""

SAFE: dict[str, Any] = {
    # Otherwise vLLM prefers Mistral's own copies of weights, settings and tokenizer, if the folder
    # has them, while all other loaders here read the standard ones.
    "load_format": "safetensors",
    "config_format": "hf",
    "tokenizer_mode": "hf",
    "trust_remote_code": False,
    "seed": 0,
}
"""Arguments of every model that vLLM loads here."""


def engine_arguments(model: str, config: EngineConfig, *, on_cpu: bool) -> dict[str, Any]:
    """Return the arguments of `vllm.LLM` for a model under a configuration.

    On a CPU: eager mode, `cpu_type` unless a type is configured, and no chunked prefill.

    Raises:
        UnloadableError: for chunked prefill on a CPU.
    """
    arguments: dict[str, Any] = SAFE | {
        "model": model,
        "dtype": cpu_type() if on_cpu and config.dtype == "auto" else config.dtype,
        "max_model_len": -1 if config.max_model_len == "auto" else config.max_model_len,
        "generation_config": "vllm",
        "enable_prefix_caching": True,
        "tensor_parallel_size": config.tensor_parallel,
        "logprobs_mode": "raw_logprobs",
        # A small model would write white space between the fields until its tokens are used up.
        "structured_outputs_config": {"backend": "xgrammar", "disable_any_whitespace": True},
    }
    if config.tensor_parallel > 1:
        # In a Ray actor vLLM would take Ray's executor, which finds no free GPU.
        arguments |= {"distributed_executor_backend": "mp"}
    if on_cpu:
        # vLLM's CPU build fails if a prompt is read in pieces and its answer has a seed.
        arguments |= {"enforce_eager": True, "enable_chunked_prefill": False}
    else:
        arguments |= {"gpu_memory_utilization": config.memory_utilization}
    return arguments | config.vllm.model_dump(mode="json", exclude_defaults=True)


def reply_form(schema: Mapping[str, Json], thinking: Thinking | None) -> dict[str, Any]:
    """Return the arguments of `StructuredOutputsParams` for replies that follow a JSON schema.

    A model that thinks writes its thought first, in any words.
    """
    if thinking is None:
        return {"json": dict(schema)}
    begin, end = thinking.tags
    reply = {"type": "json_schema", "json_schema": schema}
    opened = {"type": "tag", "begin": "" if thinking.begun else begin, "end": end}
    thought = {**opened, "content": {"type": "any_text"}}
    space = {"type": "regex", "pattern": r"\s{0,4}"}
    thoughtful = {"type": "sequence", "elements": [thought, space, reply]}
    form = thoughtful if thinking.begun else {"type": "or", "elements": [reply, thoughtful]}
    return {"structural_tag": json.dumps({"type": "structural_tag", "format": form})}


def refuse_vllm(config: EngineConfig, kind: str) -> None:
    """Refuse vLLM's settings that change results and that another engine does not have.

    Raises:
        EngineError: naming the first of them.
    """
    if kind == "vllm":
        return
    if config.max_model_len == "auto":
        raise EngineError(f"engine.max_model_len: auto is vLLM's; the {kind} engine needs a number")
    for name in ("quantization", "kv_cache_dtype"):
        if name in config.vllm.model_dump(exclude_defaults=True):
            raise EngineError(
                f"engine.vllm.{name}: the {kind} engine does not support it; leave it out, or set "
                "engine.kind to vllm"
            )


def on_cpu() -> bool:
    """Whether the installed vLLM runs models on the CPU."""
    from vllm.platforms import current_platform

    return current_platform.is_cpu()


class VLLMModel:
    """A `vllm.LLM` in this process, which can leave a GPU to others, and come back.

    vLLM frees and restores the memory of weights and cache on CUDA and ROCm. The use of its sleep
    follows vLLM's source (vllm/v1/worker/gpu_worker.py, 0.32) and was tested with a stand-in for
    vLLM, not on a GPU.
    """

    _asleep = False

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        from vllm import LLM
        from vllm.platforms import current_platform as here

        self.device = "cpu" if on_cpu() else str(here.get_device_name())
        self.sleeps = bool(here.is_sleep_mode_available() and here.is_cumem_allocator_available())
        self._llm: Any = LLM(**arguments, enable_sleep_mode=self.sleeps)

    def sleep(self) -> None:
        """Move the weights into the machine's memory and drop the cache (vLLM's level 1)."""
        if not self._asleep:
            self._llm.sleep(level=1)
            self._asleep = True

    def wake(self) -> None:
        """Move the weights back to the device and make room for a new cache."""
        if self._asleep:
            self._llm.wake_up()
            self._asleep = False

    @contextmanager
    def new_weights(self) -> Generator[None]:
        """Load weights in the block, without the cache and the old ones; afterwards be awake.

        A layer's new weights are read while its old ones are in memory, for which a cache that
        fills the device leaves no room, so the cache and the old weights are dropped first (level
        2). vLLM keeps a copy of the buffers that are in no file (rotary tables, scales of the
        cache) and restores it as the weights wake; a parameter that the folder lacks would be lost
        (vllm#15254, #16663), which the canary shows.
        """
        if not self._asleep:
            self._llm.sleep(level=2)
            self._asleep = True
        self._llm.wake_up(tags=["weights"])
        yield
        self._llm.wake_up(tags=["kv_cache"])
        self._asleep = False

    def close(self) -> None:
        """Release the model."""
        del self._llm


class VLLMEngine(VLLMModel):
    """Draws completions; `window` is how many requests to send ahead."""

    def __init__(self, model: str, config: EngineConfig) -> None:
        super().__init__(engine_arguments(model, config, on_cpu=on_cpu()))
        template = template_text(config.template)
        self._chat = ChatTokenizer.of(Path(model), template, ChatForm.of(config))
        vllm_config = self._llm.llm_engine.vllm_config
        self._context = int(vllm_config.model_config.max_model_len)
        self.window = AHEAD * int(vllm_config.scheduler_config.max_num_seqs)

    def generate(self, batches: Iterable[Batch]) -> Iterator[BatchResult]:
        """Draw every request of `batches`; yield each batch when it is complete."""
        drawing = _Drawing(self._llm.llm_engine, self._chat, self._context)
        source = iter(batches)
        more = True
        try:
            while more or drawing.pending:
                while more and drawing.pending < self.window:
                    try:
                        batch = take(source, wait=not drawing.pending)
                    except StopIteration:
                        more = False
                        break
                    if batch is None:
                        break
                    yield from drawing.admit(batch)
                yield from drawing.step()
        finally:
            drawing.abort()

    def logprobs(self, conversations: Sequence[tuple[Message, ...]]) -> list[AnswerLogprob | None]:
        """Measure the last turn of each conversation as part of a prompt.

        vLLM uses no cached prefix for such a prompt: every number comes from the present weights.
        """
        from vllm import SamplingParams
        from vllm.inputs import TokensPrompt

        parameters = SamplingParams(
            temperature=0.0, max_tokens=1, prompt_logprobs=0, detokenize=False
        )
        found: list[AnswerLogprob | None] = []
        for messages in conversations:
            prompt, answer = self._chat.split_answer(messages)
            # vLLM must draw at least one token, which must fit, too.
            if not prompt or not answer or len(prompt) + len(answer) >= self._context:
                found.append(None)
                continue
            whole = TokensPrompt(prompt_token_ids=[*prompt, *answer])
            [output] = self._llm.generate(whole, parameters, use_tqdm=False)
            rows: Any = output.prompt_logprobs
            after = zip(rows[len(prompt) :], answer, strict=True)
            logprobs = (row[token].logprob for row, token in after)
            found.append(AnswerLogprob(logprob=math.fsum(logprobs), tokens=len(answer)))
        return found

    def reload(self, folder: Path) -> None:
        """Load the weights of another folder with the same architecture and tokenizer, and wake."""
        with self.new_weights() if self.sleeps else nullcontext():
            self._llm.collective_rpc("reload_weights", kwargs={"weights_path": str(folder)})
            if self.device == "cpu":
                self._llm.apply_model(_repack_heads)
        self._llm.reset_prefix_cache()

    def configure(self, config: EngineConfig) -> None:
        """Do nothing: a loaded model is without live settings."""


def _repack_heads(model: Any) -> None:
    """Repack the weights of output layers for the CPU's matrix product.

    vLLM's reload does so for layers whose weights it loads. A head that is tied to the embedding
    loads none, and would keep using its old packed weights.
    """
    from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead

    for module in model.modules():
        if isinstance(module, ParallelLMHead):
            module.quant_method.process_weights_after_loading(module)


@dataclass(slots=True)
class _OpenBatch:
    """A batch, the bias of its tokens, and its completions so far by the places of requests."""

    batch: Batch
    bias: dict[int, float]
    done: dict[int, Completion] = field(default_factory=dict[int, Completion])


class _Drawing:
    """One pass over a caller's batches.

    `_flight` holds, by vLLM's name for a request, its batch, its place there, and its prompt.
    """

    def __init__(self, engine: Any, chat: ChatTokenizer, context: int) -> None:
        self._engine = engine
        self._chat = chat
        self._context = context
        self._names = map(str, count())
        self._flight: dict[str, tuple[_OpenBatch, int, tuple[int, ...]]] = {}

    @property
    def pending(self) -> int:
        """How many requests are in flight."""
        return len(self._flight)

    def admit(self, batch: Batch) -> Iterator[BatchResult]:
        """Queue a batch's requests; yield a batch with nothing to draw at once."""
        opened = _OpenBatch(batch, self._chat.biases(batch.sampling.logit_bias))
        for index, request in enumerate(batch.requests):
            prompt = self._chat.admit(request, self._context)
            if isinstance(prompt, Completion):
                opened.done[index] = prompt
            else:
                self._add(opened, index, prompt)
        yield from _whole(opened)

    def _add(self, opened: _OpenBatch, index: int, prompt: tuple[int, ...]) -> None:
        from vllm import SamplingParams
        from vllm.inputs import tokens_input
        from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

        request, sampling = opened.batch.requests[index], opened.batch.sampling
        form = None if request.schema is None else reply_form(request.schema, self._chat.thinking)
        parameters = SamplingParams(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k or 0,
            min_p=sampling.min_p or 0.0,
            repetition_penalty=sampling.repetition_penalty or 1.0,
            stop=list(sampling.stop),
            max_tokens=min(sampling.max_tokens, self._context - len(prompt)),
            seed=request.seed,
            stop_token_ids=list(self._chat.stops),
            logit_bias=opened.bias or None,
            logprobs=0 if sampling.logprob else None,  # a sixth of the time of short answers
            flat_logprobs=True,
            detokenize=bool(sampling.stop),
            output_kind=RequestOutputKind.FINAL_ONLY,
            structured_outputs=None if form is None else StructuredOutputsParams(**form),
        )
        name = next(self._names)
        self._engine.add_request(name, tokens_input(list(prompt)), parameters)
        self._flight[name] = opened, index, prompt

    def step(self) -> Iterator[BatchResult]:
        """Advance every running request by a token; yield the batches that became complete."""
        for output in self._engine.step() if self._flight else ():
            if not output.finished:
                continue
            opened, index, prompt = self._flight.pop(output.request_id)
            request, sampling = opened.batch.requests[index], opened.batch.sampling
            drawn = output.outputs[0]
            if drawn.finish_reason not in ("stop", "length"):
                message = f"vLLM gave up request {request.request_id}: {drawn.finish_reason}"
                raise EngineError(message)
            logprob = float(drawn.cumulative_logprob) if sampling.logprob else None
            opened.done[index] = self._chat.completion(
                request, sampling, prompt, drawn.token_ids, logprob
            )
            yield from _whole(opened)

    def abort(self) -> None:
        """Abort the requests in flight."""
        if self._flight:
            self._engine.abort_request([*self._flight])


def _whole(opened: _OpenBatch) -> Iterator[BatchResult]:
    """Yield a batch's result if it is complete."""
    if len(opened.done) == len(opened.batch.requests):
        answers = tuple(opened.done[index] for index in range(len(opened.done)))
        yield BatchResult(key=opened.batch.key, answers=answers)
