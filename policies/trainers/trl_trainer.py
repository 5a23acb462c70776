# pyright: basic
"""TRL's trainer of a job, with its arguments and models. All of it decides the weights."""

import os
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.distributed.fsdp import MixedPrecisionPolicy
from transformers import (
    AutoModelForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Trainer,
)
from transformers.distributed.fsdp import is_fsdp_enabled
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

from ...configs.methods import DPOTraining, KTOTraining
from ...configs.training import OnlineSettings
from .adapters import computing_type, frozen_arguments, peft_config, widen_adapters
from .answer_head import use_answer_head
from .base_trainer import BaseTrainer
from .job import TrainingError, TrainJob
from .next_token import NextTokenLoss
from .preference_trainers import (
    PreferenceTrainer,
    UnpairedTrainer,
    kto_arguments,
    mismatch_rows,
    preference_arguments,
)
from .rows import LABEL, chat_of, fit_turns, load_data
from .training_fit import master_of
from .work_folder import POLL_S, PULSE

LOADS_ONCE = "FSDP_CPU_RAM_EFFICIENT_LOADING"
"""The variable by which transformers gives weights to the first process, zeros to the others."""


def make_trainer(job: TrainJob, tokenizer: PreTrainedTokenizerBase) -> Trainer:
    """Build TRL's trainer of the job's method."""
    use_answer_head()
    s = job.settings
    thinking = fit_turns(job, tokenizer)
    given = {"processing_class": tokenizer, "peft_config": peft_config(job.fit, "CAUSAL_LM")}
    # The arguments come before models: creating them connects the processes that share a model.
    trainer: Any
    if isinstance(s, DPOTraining):
        args = preference_arguments(s, common_arguments(job))
        trainer = PreferenceTrainer(
            **_preferences(job, args), train_dataset=load_data(job, thinking), **given
        )
        trainer.chosen_penalty = s.chosen_penalty
    elif isinstance(s, KTOTraining):
        data = mismatch_rows(job, load_data(job, thinking))
        args = kto_arguments(s, common_arguments(job), data[LABEL])
        trainer = UnpairedTrainer(**_preferences(job, args), train_dataset=data, **given)
    else:
        args = SFTConfig(completion_only_loss=True, packing=False, **common_arguments(job))
        refuse_world(job, args.world_size)
        trainer = SupervisedTrainer(
            model=load_trained(job), args=args, train_dataset=load_data(job, thinking), **given
        )
    return fit_trainer(job, trainer)


def _preferences(job: TrainJob, args: Any) -> dict[str, Any]:
    """Return the arguments of a trainer with a reference, except its rows."""
    refuse_world(job, args.world_size)
    return {
        "model": load_trained(job),
        "ref_model": reference_model(job),
        "args": args,
    }


class SupervisedTrainer(BaseTrainer, SFTTrainer):
    """Supervised fine-tuning by TRL, with the additions of `BaseTrainer`."""


def fit_trainer(job: TrainJob, trainer: Any) -> Trainer:
    """Return a trainer with the job's order of rows, adapters and next-token loss."""
    # KTO's passes hold the rows whose answers were exchanged for its KL.
    trainer.by_length = job.fit.group_by_length and job.method != "kto"
    trainer.ref_model = None  # Its log-probabilities of the rows are computed.
    if job.fit.adapts:
        widen_adapters(trainer.model)
    if job.supervised is not None:
        chat = chat_of(job)
        trainer.next_token = NextTokenLoss(job, job.supervised, chat, trainer.accelerator)
    return trainer


def reference_model(job: TrainJob) -> PreTrainedModel | None:
    """Return the reference policy; None if it is the trained model, which is not trained yet."""
    path = job.reference or job.model
    if path.resolve() == job.model.resolve() and not is_sharded():
        return None
    # In the type of the frozen weights of the policy, if it has adapters.
    special = frozen_arguments(job) if job.fit.adapts else None
    with loaded_in_each_process():
        return load_model(job, path if job.fit.adapts else master_of(path), special)


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
        "gradient_checkpointing": job.fit.gradient_checkpointing == "always",
        "optim": "adamw_bnb_8bit" if job.fit.optimizer == "adamw_8bit" else "adamw_torch_fused",
        "use_liger_kernel": job.fit.liger,
        "dataloader_pin_memory": cuda,
        # Without it all gradients of a step would be kept whole until its last pass.
        "accelerator_config": {"gradient_accumulation_kwargs": {"sync_each_batch": is_sharded()}},
        "logging_steps": 1,
        "logging_nan_inf_filter": False,
        "save_strategy": "no",  # `StepRecorder` requests checkpoints and removes them
        "report_to": "none",
        "disable_tqdm": True,
    }


def refuse_world(job: TrainJob, processes: int) -> None:
    """Refuse a number of processes other than the job's: it would change the batch size."""
    if processes != job.processes:
        message = f"the job asks for {job.processes} processes, the launcher started {processes}"
        raise TrainingError("refused", message)


def loading(job: TrainJob) -> dict[str, Any]:
    """Return the arguments of `from_pretrained` for all models: no remote code, no pickles."""
    arguments = {
        "dtype": "float32",
        "local_files_only": True,
        "use_safetensors": True,
        "trust_remote_code": False,
    }
    if job.fit.attention != "auto":
        arguments["attn_implementation"] = job.fit.attention
    return arguments


def trained_loading(job: TrainJob) -> dict[str, Any]:
    """Return the arguments to load the trained model: frozen below adapters, or in full."""
    if job.fit.adapts:
        # The trainer makes the adapters before it sets its own seed.
        torch.manual_seed(job.seed % 2**32)
        return loading(job) | frozen_arguments(job)
    return loading(job)


def load_trained(job: TrainJob) -> PreTrainedModel:
    """Load the model to be trained."""
    return load_model(job, job.start, trained_loading(job))


def load_model(
    job: TrainJob, path: Path, special: Mapping[str, Any] | None = None
) -> PreTrainedModel:
    """Load a model in float32, or with the arguments in `special`."""
    model = AutoModelForCausalLM.from_pretrained(path, **loading(job) | dict(special or {}))
    model.register_forward_pre_hook(Pulse(job.folder(PULSE)))
    return model


class Pulse:
    """Touches a file when a model is called: a sign of life also during long steps."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.touched = 0.0

    def __call__(self, *_: Any) -> None:
        """Touch the file, at most once in `POLL_S` seconds."""
        now = time.monotonic()
        if now - self.touched >= POLL_S:
            self.path.touch()
            self.touched = now


# FSDP: accelerate and TRL divide the model. They leave these steps to their caller: without them it
# learns from a wrong reference, or sums its gradients in 16 bits.


def is_sharded() -> bool:
    """Whether the launcher's file configures FSDP."""
    return os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true"


@contextmanager
def loaded_in_each_process() -> Generator[None]:
    """Make every process load the weights of a reference.

    The first process sends the trained model's weights to the others, but not a reference's, which
    would then be zeros.
    """
    if not is_fsdp_enabled():
        yield
        return
    os.environ[LOADS_ONCE] = "false"
    try:
        yield
    finally:
        os.environ[LOADS_ONCE] = "true"


def fit_sharding(trainer: Trainer) -> None:
    """Sum gradients over processes in float32, whatever type the passes compute in."""
    plugin: Any = getattr(trainer.accelerator.state, "fsdp_plugin", None)
    policy: Any = getattr(plugin, "mixed_precision_policy", None)
    if isinstance(policy, MixedPrecisionPolicy):
        plugin.mixed_precision_policy = MixedPrecisionPolicy(
            param_dtype=policy.param_dtype,
            reduce_dtype=torch.float32,
            output_dtype=policy.output_dtype,
        )
