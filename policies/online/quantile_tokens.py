# pyright: basic
"""A policy with Quark's quantile tokens in its vocabulary (Lu et al., 2022, Section 2.1)."""

from dataclasses import replace
from typing import Any

import torch
from tokenizers import AddedToken

from ...configs.methods import QuarkTraining
from ...stores.durable import TEMPORARY, make_folder, publish_folder, remove
from ...stores.keys import derive_seed
from ..engines.chat_template import load_tokenizer
from ..trainers.job import TrainJob
from ..trainers.trained_model import copy_tokenizer
from ..trainers.training_fit import master_of
from ..trainers.trl_trainer import load_model
from .quantiles import quantile_token

EXTENDED = "extended"
"""The folder, within the work folder, of the model with the added tokens."""


def with_tokens(job: TrainJob) -> TrainJob:
    """Return the job on a model with quantile tokens, if the settings use them.

    The reference stays as it was: it never sees the tokens.
    """
    settings = job.settings
    if not isinstance(settings, QuarkTraining) or settings.train_on != "all":
        return job
    folder = job.folder(EXTENDED)
    if not folder.exists():
        _extend(job, [quantile_token(q) for q in range(settings.quantiles)])
    return replace(job, model=folder, reference=job.reference or job.model)


def _extend(job: TrainJob, tokens: list[str]) -> None:
    """Save the job's model with the tokens added; one that it already has stays as it is."""
    draft = job.output / f"{TEMPORARY}{EXTENDED}"
    if draft.exists():
        remove(draft)
    copy_tokenizer(job.model, make_folder(draft))
    tokenizer = load_tokenizer(job.model, job.template)
    model: Any = load_model(job, master_of(job.model))
    first = len(tokenizer)
    # Not special: the names of special tokens are broken up in prompts (`chat.ChatTokenizer`).
    added = [AddedToken(token, special=False, normalized=False) for token in tokens]
    count = tokenizer.add_tokens(added)
    if len(tokenizer) > model.get_input_embeddings().num_embeddings:
        model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    generator = torch.Generator().manual_seed(derive_seed(job.seed, "quantile tokens"))
    begin(model.get_input_embeddings().weight.data, first, count, generator)
    if not model.config.tie_word_embeddings:
        begin(model.get_output_embeddings().weight.data, first, count, generator)
    model.save_pretrained(draft)
    tokenizer.save_pretrained(draft)
    publish_folder(draft, job.output, EXTENDED)


def begin(weight: torch.Tensor, first: int, count: int, generator: torch.Generator) -> None:
    """Initialise new tokens' rows: the mean of the rows before, plus noise of the same spread.

    `weight` is (vocabulary, width); the rows `first` to `first + count` change.
    """
    known = weight[:first].float()
    noise = torch.randn(count, weight.shape[1], generator=generator)
    new = known.mean(dim=0) + noise * known.std(dim=0)
    weight[first : first + count] = new.to(weight.dtype)
