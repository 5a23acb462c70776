"""Sampling with vLLM's offline engine, inside a worker process.

The engine is stepped continuously: batches are admitted while there is room and returned as soon as
they are whole, so the caller can commit while the rest is drawn. Every request
carries its own seed. On a CPU its noise comes from the lower 32 bits of that seed (PyTorch's CPU
generator reads no more).

On a CPU with one thread (`cpu_threads: 1`) the same seeds give the same tokens and the same bits of
their log-probabilities, whatever else is in flight; with more threads those bits can move. On a GPU
results depend on the batch unless VLLM_BATCH_INVARIANT=1 is set (see vLLM's reproducibility page).
"""

# pyright: basic

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from ...configs.schema import EngineConfig
from ...stores.records import Message
from .chat import ChatTokenizer
from .chat_template import template_text
from .engine import (
    AnswerLogprob,
    Batch,
    BatchResult,
    Completion,
    EngineError,
    Request,
)
from .feed import arrived
from .thinking import ChatForm
from .vllm_arguments import engine_arguments
from .vllm_sleep import VLLMSleep, sleeps_here

AHEAD = 2
"""Requests admitted, as a multiple of those that run at once: refilling needs no pause."""


@dataclass(slots=True)
class _OpenBatch:
    """A batch with requests still in flight."""

    batch: Batch
    bias: dict[int, float]
    done: list[Completion | None]
    missing: int = field(init=False)

    def __post_init__(self) -> None:
        self.missing = len(self.done)

    def settle(self, index: int, completion: Completion) -> None:
        self.done[index] = completion
        self.missing -= 1

    def result(self) -> BatchResult:
        return BatchResult(
            key=self.batch.key, completions=tuple(c for c in self.done if c is not None)
        )


class VLLMEngine:
    """`vllm.LLM` in this process; `window` is how many requests to send ahead."""

    name = "vllm"

    def __init__(self, model: str, config: EngineConfig) -> None:
        from vllm import LLM
        from vllm.platforms import current_platform

        on_cpu = current_platform.is_cpu()
        self.device = "cpu" if on_cpu else str(current_platform.get_device_name())
        self.sleeps = sleeps_here()
        arguments = engine_arguments(model, config, on_cpu=on_cpu)
        self._llm = LLM(**arguments, enable_sleep_mode=self.sleeps)
        self._rest = VLLMSleep(self._llm)
        template = template_text(config.template)
        self._chat = ChatTokenizer.of(Path(model), template, ChatForm.of(config))
        vllm_config = self._llm.llm_engine.vllm_config
        self._context = int(vllm_config.model_config.max_model_len)
        self.window = AHEAD * int(vllm_config.scheduler_config.max_num_seqs)

    def generate(self, batches: Iterable[Batch]) -> Iterator[BatchResult]:
        """Draw every request of `batches`; yield each batch when it is whole."""
        drawing = _Drawing(self._llm.llm_engine, self._chat, self._context)
        source = iter(batches)
        more = True
        try:
            while more or drawing.pending:
                while (
                    more
                    and drawing.pending < self.window
                    and (not drawing.pending or arrived(source))
                ):
                    batch = next(source, None)
                    more = batch is not None
                    if batch is not None:
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
            prompt, answer = self._chat.parted(messages)
            # vLLM must draw at least one token, which must fit, too.
            if not prompt or not answer or len(prompt) + len(answer) >= self._context:
                found.append(None)
                continue
            whole = TokensPrompt(prompt_token_ids=[*prompt, *answer])
            [output] = self._llm.generate(whole, parameters, use_tqdm=False)
            rows: Any = output.prompt_logprobs
            after = zip(rows[len(prompt) :], answer, strict=True)
            said = (row[token].logprob for row, token in after)
            found.append(AnswerLogprob(logprob=math.fsum(said), tokens=len(answer)))
        return found

    def reload(self, folder: Path) -> None:
        """Load the weights of another folder with the same architecture and tokenizer, and wake."""
        with self._rest.new_weights() if self.sleeps else nullcontext():
            self._llm.collective_rpc("reload_weights", kwargs={"weights_path": str(folder)})
            if self.device == "cpu":
                self._llm.apply_model(_repack_heads)
        self._llm.reset_prefix_cache()

    def sleep(self) -> None:
        """Leave the device to others; nothing may be in flight."""
        self._rest.sleep()

    def wake(self) -> None:
        """Come back to the device; do nothing where it is awake."""
        self._rest.wake()

    def configure(self, config: EngineConfig) -> None:
        """Do nothing: a loaded model has no live settings."""

    def close(self) -> None:
        """Release the model."""
        del self._llm


def _repack_heads(model: Any) -> None:
    """Repack the weights of output layers for the CPU's matrix product.

    vLLM's reload does so for layers whose weights it loads. A head that is tied to the embedding
    loads none, and would keep using its old packed weights.
    """
    from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead

    for module in model.modules():
        if isinstance(module, ParallelLMHead):
            module.quant_method.process_weights_after_loading(module)


class _Drawing:
    """One pass over a caller's batches: the requests in flight, and the batch of each."""

    def __init__(self, engine: Any, chat: ChatTokenizer, context: int) -> None:
        self._engine = engine
        self._chat = chat
        self._context = context
        self._numbers = count()
        self._places: dict[str, tuple[_OpenBatch, int, int]] = {}
        self._internal: dict[str, str] = {}

    @property
    def pending(self) -> int:
        """How many requests are in flight."""
        return len(self._places)

    def admit(self, batch: Batch) -> Iterator[BatchResult]:
        """Queue a batch's requests; a batch with nothing to draw comes back at once."""
        bias = self._chat.biases(batch.sampling.logit_bias)
        opened = _OpenBatch(batch, bias, [None] * len(batch.requests))
        for index, request in enumerate(batch.requests):
            prompt = self._chat.admitted(request, self._context)
            if isinstance(prompt, Completion):
                opened.settle(index, prompt)
            else:
                self._add(opened, index, request, prompt)
        if not opened.missing:
            yield opened.result()

    def _add(
        self, opened: _OpenBatch, index: int, request: Request, prompt: tuple[int, ...]
    ) -> None:
        from vllm import SamplingParams
        from vllm.inputs import tokens_input
        from vllm.sampling_params import RequestOutputKind

        sampling = opened.batch.sampling
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
        )
        number = str(next(self._numbers))
        self._places[number] = (opened, index, len(prompt))
        internal = self._engine.add_request(number, tokens_input(list(prompt)), parameters)
        self._internal[number] = internal

    def step(self) -> Iterator[BatchResult]:
        """Advance every running request by a token; yield the batches that became whole."""
        if not self._places:
            return
        for output in self._engine.step():
            if not output.finished:
                continue
            opened, index, prompt_tokens = self._places.pop(output.request_id)
            del self._internal[output.request_id]
            completion = self._completion(opened.batch, index, prompt_tokens, output.outputs[0])
            opened.settle(index, completion)
            if not opened.missing:
                yield opened.result()

    def _completion(self, batch: Batch, index: int, prompt_tokens: int, drawn: Any) -> Completion:
        request = batch.requests[index]
        if drawn.finish_reason not in ("stop", "length"):
            raise EngineError(f"vLLM gave up request {request.request_id}: {drawn.finish_reason}")
        said = self._chat.said(drawn.token_ids, batch.sampling.stop)
        return Completion(
            request_id=request.request_id,
            text=said.text,
            reasoning=said.reasoning,
            prompt_tokens=prompt_tokens,
            completion_tokens=len(drawn.token_ids),
            finish_reason=said.finish_reason,
            logprob=float(drawn.cumulative_logprob) if batch.sampling.logprob else None,
            token_ids=tuple(drawn.token_ids) if batch.sampling.token_ids else None,
        )

    def abort(self) -> None:
        """Abort what is still in flight."""
        if self._internal:
            self._engine.abort_request(list(self._internal.values()), internal=True)
