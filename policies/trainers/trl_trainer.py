# pyright: basic
"""TRL's trainer of a job: its arguments, its models, its data. All of it decides the weights."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import (
    AutoModelForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Trainer,
)
from trl.trainer.sft_config import SFTConfig

from ...configs.group_methods import OnlineSettings
from ...configs.methods import DPOTraining, KTOTraining, SFTTraining
from ..engines.thinking import Thinking
from ..engines.weight_files import weight_files
from .adapters import computing_type, frozen_arguments, peft_config, widen_adapters
from .answer_head import use_answer_head
from .job import LARGE, TrainingError, TrainJob
from .kto_trainer import ASKED, LABEL, kto_arguments, mismatched
from .next_token_trainers import DPOWithNextToken, KTOWithNextToken, SFTWithNextToken
from .preference_loss import preference_arguments
from .reference_logprobs import KeptReference
from .remainder_adamw import RemainderAdamW, split_weights
from .rows_end_to_end import cut_rows, refuse_mixing
from .sharded_training import is_sharded, loaded_in_each_process, recomputes_itself
from .trained_turns import chat_of, fit_turns, ids_of, with_thoughts
from .training_fit import master_of
from .warm_up import WarmedDPOTrainer, WarmedKTOTrainer, WarmedSFTTrainer
from .work_folder import CACHE, PULSE

COLUMNS = {
    "dpo": ("prompt", "chosen", "rejected"),
    "sft": ("prompt", "completion"),
    "distil": ("prompt", "teacher_prompt", "completion"),
    "kto": ("prompt", "completion", LABEL, ASKED),
}
PULSE_S = 1.0
"""Seconds between touches of the file that shows that the trainer still computes."""


def make_trainer(job: TrainJob, tokenizer: PreTrainedTokenizerBase) -> Trainer:
    """Build TRL's trainer of the job's method."""
    use_answer_head()
    # The arguments come first: with ZeRO-3 creating them changes how models are loaded.
    s = job.settings
    thinking = fit_turns(job, tokenizer)
    trainer: Any
    if isinstance(s, DPOTraining):
        args = preference_arguments(s, common_arguments(job))
        refuse_world(job, args.world_size)
        trainer = (DPOWithNextToken if job.supervised else WarmedDPOTrainer)(
            kept=KeptReference.of(job),
            by_length=job.fit.group_by_length,
            model=load_trained(job),
            ref_model=reference_model(job),
            args=args,
            train_dataset=load_data(job, thinking),
            processing_class=tokenizer,
            peft_config=peft_config(job.fit, "CAUSAL_LM"),
        )
        trainer.chosen_penalty = s.chosen_penalty
        trainer.ref_model = None  # What it says of the rows has been computed.
    elif isinstance(s, KTOTraining):
        data = mismatched(job, load_data(job, thinking))
        args = kto_arguments(s, common_arguments(job), data[LABEL])
        refuse_world(job, args.world_size)
        trainer = (KTOWithNextToken if job.supervised else WarmedKTOTrainer)(
            kept=KeptReference.of(job),
            by_length=False,
            model=load_trained(job),
            ref_model=reference_model(job),
            args=args,
            train_dataset=data,
            processing_class=tokenizer,
            peft_config=peft_config(job.fit, "CAUSAL_LM"),
        )
        trainer.ref_model = None
    else:
        args = sft_arguments(job)
        refuse_world(job, args.world_size)
        trainer = (SFTWithNextToken if job.supervised else WarmedSFTTrainer)(
            model=load_trained(job),
            args=args,
            train_dataset=load_data(job, thinking),
            processing_class=tokenizer,
            peft_config=peft_config(job.fit, "CAUSAL_LM"),
        )
        if packs(job):
            trainer.train_dataset = cut_rows(trainer.train_dataset, s.max_length)
            refuse_mixing(trainer)
    if job.supervised is not None:
        trainer.add(job, job.supervised, chat_of(job))
    return fitted(job, trainer)


def fitted(job: TrainJob, trainer: Any) -> Trainer:
    """Return a trainer whose passes, weights and optimizer are as the job has them."""
    # KTO's passes hold the rows whose answers were exchanged for its KL.
    trainer.by_length = job.fit.group_by_length and job.method != "kto"
    if job.fit.adapts:
        widen_adapters(trainer.model)
    elif job.fit.weights == "bfloat16":
        args = trainer.args
        betas = (args.adam_beta1, args.adam_beta2)
        own = {"lr": args.learning_rate, "betas": betas, "eps": args.adam_epsilon}
        trainer.optimizer_cls_and_kwargs = (RemainderAdamW, own)
    return trainer


def reference_model(job: TrainJob) -> PreTrainedModel | None:
    """Return the reference policy; None where the trained model, not trained yet, can be asked."""
    path = other_reference(job)
    if path is None and not is_sharded():
        return None
    with loaded_in_each_process():
        return load_reference(job, path or job.model)


def other_reference(job: TrainJob) -> Path | None:
    """Return the reference policy if it is not the trained model itself."""
    same = job.reference is None or job.reference.resolve() == job.model.resolve()
    return None if same else job.reference


def common_arguments(job: TrainJob) -> dict[str, Any]:
    """Return the training arguments that TRL's methods share."""
    s = job.settings
    if isinstance(s, OnlineSettings):
        raise TrainingError("refused", f"{job.method} is not one of TRL's methods")
    cuda = torch.cuda.is_available()
    # transformers' "constant" schedule ignores the warm-up.
    constant = "constant_with_warmup" if s.warmup_ratio else "constant"
    seed = job.seed % 2**32
    return {
        "output_dir": str(job.folder("checkpoints")),
        "seed": seed,
        "data_seed": seed,
        "per_device_train_batch_size": s.micro_batch_size,
        "gradient_accumulation_steps": job.accumulation,
        "num_train_epochs": s.epochs,
        "learning_rate": s.learning_rate,
        "lr_scheduler_type": constant if s.scheduler == "constant" else s.scheduler,
        "warmup_steps": s.warmup_ratio,  # below 1 means a share of all steps
        "max_length": s.max_length,
        "use_cpu": not cuda,
        "bf16": computing_type(job) == torch.bfloat16,
        "gradient_checkpointing": recomputes(job),
        "optim": "adamw_bnb_8bit" if job.fit.optimizer == "adamw_8bit" else "adamw_torch_fused",
        "use_liger_kernel": job.fit.liger,
        "dataloader_pin_memory": cuda,
        # Gradients of all passes of a step would else be kept whole until its last one.
        "accelerator_config": {"gradient_accumulation_kwargs": {"sync_each_batch": is_sharded()}},
        "logging_steps": 1,
        "logging_nan_inf_filter": False,
        "save_strategy": "no",  # `Journal` requests checkpoints and removes them
        "report_to": "none",
        "disable_tqdm": True,
    }


def sft_arguments(job: TrainJob) -> SFTConfig:
    """Return SFT's arguments; the loss is on the completion only."""
    common = common_arguments(job)
    if packs(job):
        common |= {"padding_free": True, "max_length": None}
    return SFTConfig(completion_only_loss=True, packing=False, **common)


def packs(job: TrainJob) -> bool:
    """Return whether rows are laid end to end, without padding."""
    return isinstance(job.settings, SFTTraining) and job.settings.packing


def refuse_world(job: TrainJob, processes: int) -> None:
    """Refuse a number of processes other than the job's: it would change the batch size."""
    if processes != job.processes:
        message = f"the job asks for {job.processes} processes, the launcher started {processes}"
        raise TrainingError("refused", message)


def weight_bytes(model: Path) -> int:
    """Return the size of a model's weight files in bytes."""
    return sum(p.stat().st_size for p in weight_files(model))


def recomputes(job: TrainJob) -> bool:
    """Return whether activations are computed again in the backward pass."""
    if job.fit.recompute == "auto":
        return not recomputes_itself() and weight_bytes(job.model) > 2 * LARGE
    return job.fit.recompute == "always"


def loading(job: TrainJob) -> dict[str, Any]:
    """Return how models are loaded, for `from_pretrained`: without remote code or pickles."""
    arguments = {
        "dtype": job.fit.weights,
        "local_files_only": True,
        "use_safetensors": True,
        "trust_remote_code": False,
    }
    if job.fit.attention != "auto":
        arguments["attn_implementation"] = job.fit.attention
    return arguments


def trained_loading(job: TrainJob) -> dict[str, Any]:
    """Return how the model to be trained is loaded: frozen, below adapters, or all of its bits."""
    if job.fit.adapts:
        # A seed for the adapters, which the trainer makes before it sets its own.
        torch.manual_seed(job.seed % 2**32)
        return loading(job) | frozen_arguments(job)
    return loading(job) | ({"dtype": "auto"} if job.fit.weights == "bfloat16" else {})


def load_trained(job: TrainJob) -> PreTrainedModel:
    """Load the model to be trained."""
    model = load_model(job, job.start, trained_loading(job))
    if job.fit.weights == "bfloat16":
        split_weights(model)
    return model


def load_reference(job: TrainJob, path: Path) -> PreTrainedModel:
    """Load the reference policy, in the type of the frozen weights of the policy."""
    if job.fit.adapts:
        return load_model(job, path, frozen_arguments(job))
    return load_model(job, master_of(path))


def load_model(
    job: TrainJob, path: Path, special: Mapping[str, Any] | None = None
) -> PreTrainedModel:
    """Load a model in the type of the job's weights, or as `special` says."""
    model = AutoModelForCausalLM.from_pretrained(path, **loading(job) | dict(special or {}))
    model.register_forward_pre_hook(Pulse(job.folder(PULSE)))
    return model


class Pulse:
    """Touches a file when a model is called: a sign of life also during long steps."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.touched = -PULSE_S

    def __call__(self, *_: Any) -> None:
        """Touch the file, at most once in `PULSE_S` seconds."""
        now = time.monotonic()
        if now - self.touched >= PULSE_S:
            self.path.touch()
            self.touched = now


def load_data(job: TrainJob, thinking: Thinking | None) -> Dataset:
    """Return the parts' rows in the job's order, with only the columns that are trained on."""
    data = Dataset.from_parquet(
        [str(p) for p in job.data],
        columns=[*COLUMNS[job.method], *ids_of(job)],
        cache_dir=str(job.folder(CACHE)),
    )
    if not len(data):
        raise TrainingError("refused", "there is no row to train on")
    return with_thoughts(job, data, thinking)
