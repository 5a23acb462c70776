# pyright: basic
"""The next-token loss on people's answers, added to another loss (ChatGLM-RLHF, Eq. 6).

An optimizer step adds beta times the mean negative log-likelihood, over the answers' tokens, of a
batch of the supervised set D_S. The paper has the sum over D_S; with the mean, beta does not depend
on the sizes of set and answers. The seed decides the orders in which batches pass through D_S, so a
step's batch is a function of its number, and a resumed training needs no stored position.
"""

import logging

import pyarrow.parquet as pq
import torch
from accelerate import Accelerator
from torch import Tensor

from ...stores.keys import derive_seed
from ...stores.records import Message
from ..engines.chat import ChatTokenizer
from .job import SupervisedSet, TrainingError, TrainJob
from .sequences import Spoken, answer_logits, chosen_logprobs, passes
from .step_files import prompts_of_step

logger = logging.getLogger(__name__)

COLUMNS = ("prompt", "completion")
METRIC = "loss/next_token"
"""The mean negative log-likelihood of a step's batch, in nats a token, before the weight."""


class NextTokenLoss:
    """The loss of a job's supervised set, and the batch of each optimizer step."""

    def __init__(
        self,
        job: TrainJob,
        supervised: SupervisedSet,
        chat: ChatTokenizer,
        accelerator: Accelerator,
    ) -> None:
        self.weight = supervised.weight
        self._size = supervised.batch_size
        self._together = job.settings.micro_batch_size
        self._seed = derive_seed(job.seed, "next-token")
        self._accelerator = accelerator
        self._spoken = read_supervised(job, supervised, chat)

    @classmethod
    def of(
        cls, job: TrainJob, chat: ChatTokenizer, accelerator: Accelerator
    ) -> "NextTokenLoss | None":
        """Return the loss of the job's supervised set, if it has one."""
        if job.supervised is None:
            return None
        return cls(job, job.supervised, chat, accelerator)

    def batch(self, update: int) -> list[Spoken]:
        """Return the demonstrations of an optimizer step; `update` counts from 1."""
        rows = prompts_of_step(len(self._spoken), self._seed, step=update, rollouts=self._size)
        return [self._spoken[row] for row in rows]

    def add_gradients(self, model: torch.nn.Module, update: int) -> Tensor:
        """Add the gradients of an optimizer step's batch; return its mean NLL, a scalar in nats.

        Each process takes its share of the batch; gradients are averaged over processes afterwards.
        The scalar is that share's part of the mean, times the number of processes.
        """
        accelerator = self._accelerator
        batch = self.batch(update)
        tokens = sum(len(spoken.answer) for spoken in batch)
        own = batch[accelerator.process_index :: accelerator.num_processes]
        total = torch.zeros((), dtype=torch.float64, device=accelerator.device)
        for work in passes(own, range(len(own)), self._together, accelerator.device):
            with accelerator.autocast():
                logits = answer_logits(model, work)
            mask = work.mask[:, work.queries :]
            logprobs = chosen_logprobs(logits, work.answers, 1.0) * mask
            share = -logprobs.sum() * (accelerator.num_processes / tokens)
            accelerator.backward(self.weight * share)
            total += share.detach()
        return total


def read_supervised(job: TrainJob, supervised: SupervisedSet, chat: ChatTokenizer) -> list[Spoken]:
    """Return the tokens of the demonstrations that fit the training's length.

    Raises:
        TrainingError: of kind `refused`, if none is left.
    """
    conversations = [
        tuple(Message(**turn) for turn in (*row["prompt"], *row["completion"]))
        for path in supervised.data
        for row in pq.read_table(path, columns=list(COLUMNS)).to_pylist()
    ]
    parted = (chat.split_answer(messages) for messages in conversations)
    spoken = [Spoken(prompt=tuple(prompt), answer=tuple(answer)) for prompt, answer in parted]
    longest = job.settings.max_length
    fitting = [s for s in spoken if s.answer and len(s.prompt) + len(s.answer) <= longest]
    if len(fitting) < len(spoken):
        logger.warning(
            "%d supervised answers exceed %d tokens", len(spoken) - len(fitting), longest
        )
    if not fitting:
        raise TrainingError(
            "refused",
            f"the supervised set contains no answer of at most {longest} tokens; raise max_length",
        )
    return fitting
