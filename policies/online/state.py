# pyright: basic
"""The state of an online training between two steps: all that later steps depend on.

A checkpoint holds every trained network, the optimizer, the schedule, the trainer's own numbers,
the random number generators and the metrics so far. Rollouts, seeds and orders are functions of the
step's number and need not be stored.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_model, save_model
from torch import nn
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.optim import Optimizer

from ...stores.durable import make_folder, remove
from ..trainers.checkpoints import PREFIX
from ..trainers.job import TrainJob
from .online_trainer import OnlineTrainer

OPTIMIZER, SCHEDULE, RNG = "optimizer.pt", "scheduler.pt", "rng_state.pth"
STATE = "trainer_state.json"
ARGUMENTS = "job.json"
SHARDED_WEIGHTS, SHARDED_OPTIMIZER = "pytorch_model_fsdp_0", "optimizer_0"
"""The folders, within a checkpoint, of the state that every process writes a part of."""


def save_state(
    trainer: OnlineTrainer[Any], history: Sequence[Mapping[str, float]], job: TrainJob
) -> Path:
    """Write the state after a step into a checkpoint, not yet sealed; return its folder.

    `history` has the metrics of each step so far. The first process writes all that is not sharded.
    """
    folder = job.folder("checkpoints") / f"{PREFIX}{len(history)}"
    networks, ranks = trainer.networks, trainer.ranks
    if ranks.is_first:
        if folder.exists():
            remove(folder)
        make_folder(folder)
        if not networks.is_sharded:
            for name, network in networks.trained.items():
                save_model(network, str(folder / f"{name}.safetensors"))
            torch.save(trainer.optimizer.state_dict(), folder / OPTIMIZER)
        torch.save(trainer.schedule.state_dict(), folder / SCHEDULE)
        cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
        torch.save({"cpu": torch.get_rng_state(), "cuda": cuda}, folder / RNG)
        state = {"numbers": trainer.numbers, "metrics": history}
        (folder / STATE).write_text(json.dumps(state, allow_nan=False))
        (folder / ARGUMENTS).write_bytes(job.folder("job.json").read_bytes())
    if networks.is_sharded:
        ranks.wait()
        weights, moments = get_state_dict(networks.trained, trainer.optimizer)
        state_dict_saver.save(weights, checkpoint_id=folder / SHARDED_WEIGHTS)
        state_dict_saver.save(moments, checkpoint_id=folder / SHARDED_OPTIMIZER)
    ranks.wait()
    return folder


def load_state(trainer: OnlineTrainer[Any], checkpoint: Path) -> list[Mapping[str, float]]:
    """Load the state of a checkpoint whose seal was verified; return the metrics of its steps."""
    trained = trainer.networks.trained
    device = next(trained.parameters()).device
    if trainer.networks.is_sharded:
        _load_sharded(trained, trainer.optimizer, checkpoint)
    else:
        for name, network in trained.items():
            load_model(network, str(checkpoint / f"{name}.safetensors"))
        trainer.optimizer.load_state_dict(_read(checkpoint / OPTIMIZER, device))
    trainer.schedule.load_state_dict(_read(checkpoint / SCHEDULE, device))
    generators = _read(checkpoint / RNG, torch.device("cpu"))
    torch.set_rng_state(generators["cpu"])
    if torch.cuda.is_available():
        torch.cuda.set_rng_state_all(generators["cuda"])
    state = json.loads((checkpoint / STATE).read_bytes())
    trainer.numbers.update(state["numbers"])
    return state["metrics"]


def _load_sharded(trained: nn.ModuleDict, optimizer: Optimizer, checkpoint: Path) -> None:
    """Read this process's part of weights and moments."""
    weights, moments = get_state_dict(trained, optimizer)
    state_dict_loader.load(weights, checkpoint_id=checkpoint / SHARDED_WEIGHTS)
    state_dict_loader.load(moments, checkpoint_id=checkpoint / SHARDED_OPTIMIZER)
    set_state_dict(trained, optimizer, model_state_dict=weights, optim_state_dict=moments)


def _read(path: Path, device: torch.device) -> Any:
    return torch.load(path, map_location=device, weights_only=True)
