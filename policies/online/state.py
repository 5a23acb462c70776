# pyright: basic
"""The state of an online training between two steps: all that later steps depend on.

A checkpoint holds every trained network, the optimizer, the schedule, the method's own numbers, the
random number generators and the metrics so far. Rollouts, seeds and orders are functions of the
step's number and need not be stored.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors.torch import load_model, save_model
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR

from ...configs.group_methods import OnlineSettings
from ...stores.durable import make_folder, remove
from ..trainers.base_trainer import warmed
from ..trainers.bfloat16 import RemainderAdamW
from ..trainers.checkpoints import PREFIX, checkpoint_step
from ..trainers.job import TrainJob
from ..trainers.step_files import StepRows
from .divided_networks import load_parts, save_parts
from .environment import Clock
from .networks import Networks
from .ranks import Ranks

RNG = "rng_state.pth"
STATE = "trainer_state.json"
ARGUMENTS = "job.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutcome:
    """A step's result: its rows, and its metrics, `loss` among them."""

    rows: StepRows
    metrics: Mapping[str, float]


class OnlineMethod(Protocol):
    """A method that samples while it trains.

    `numbers` hold all that a later step depends on besides networks, optimizer and schedule.
    """

    settings: Any
    networks: Networks
    optimizer: Optimizer
    schedule: LambdaLR
    numbers: dict[str, float]

    def step(self, number: int, clock: Clock) -> StepOutcome:
        """Make one step; `number` counts from 1."""
        ...


@dataclass(slots=True)
class History:
    """A training's progress, and the metrics of its steps."""

    step: int = 0
    metrics: list[Mapping[str, float]] = field(default_factory=list)


def make_optimizer(
    job: TrainJob, networks: Networks, *, eps: float, fused: bool | None
) -> Optimizer:
    """Return AdamW over what is trained, in the form that its weights' type needs."""
    weights = list(networks.trained.parameters())
    rate = job.settings.learning_rate
    if job.fit.optimizer == "adamw_8bit":
        from bitsandbytes.optim import AdamW8bit  # pyright: ignore[reportMissingImports]

        return AdamW8bit(weights, lr=rate, eps=eps, weight_decay=0.0)
    if job.fit.weights == "bfloat16" and not job.fit.adapts:
        return RemainderAdamW(weights, lr=rate, eps=eps)
    return AdamW(weights, lr=rate, eps=eps, weight_decay=0.0, fused=fused)


def make_schedule(
    optimizer: Optimizer, settings: OnlineSettings, *, steps: int, updates: int
) -> LambdaLR:
    """Return the learning rate of so many steps, each of so many optimizer steps.

    It is counted by optimizer steps with the first already above 0, or by steps as the papers' code
    does: 0, 1/w, 2/w, ... of the peak.
    """
    by_step = settings.schedule_by == "step"
    warmup, last = settings.warmup_steps, steps if by_step else steps * updates

    def later(done: int) -> float:
        falling = max(0.0, (last - done) / max(1, last - warmup))
        return falling if settings.scheduler == "linear" else 1.0

    def counted_by_step(done: int) -> float:
        return done / warmup if done < warmup else later(done)

    return LambdaLR(optimizer, counted_by_step if by_step else warmed(warmup, later))


def update_weights(method: OnlineMethod, ranks: Ranks, *, max_norm: float) -> Tensor:
    """Make an optimizer step of the gradients of all processes; return their norm unclipped."""
    weights = list(method.networks.trained.parameters())
    if not method.networks.is_divided:
        ranks.average_gradients(weights)
    norm: Any = nn.utils.clip_grad_norm_(weights, max_norm)
    if isinstance(norm, DTensor):
        norm = norm.full_tensor()
    method.optimizer.step()
    if method.settings.schedule_by == "update":
        method.schedule.step()
    method.optimizer.zero_grad()
    return norm.cpu()


def save_state(
    method: OnlineMethod, history: History, checkpoints: Path, job: bytes, ranks: Ranks
) -> Path:
    """Write the state after a step into a checkpoint, not yet sealed; return its folder.

    The first process writes all that is not divided.
    """
    folder = checkpoints / f"{PREFIX}{history.step}"
    networks = method.networks
    if ranks.is_first:
        if folder.exists():
            remove(folder)
        make_folder(folder)
        _save_whole(method, history, folder)
        (folder / ARGUMENTS).write_bytes(job)
    if networks.is_divided:
        ranks.wait()
        save_parts(networks.trained, method.optimizer, folder)
    ranks.wait()
    return folder


def _save_whole(method: OnlineMethod, history: History, folder: Path) -> None:
    """Write what one process has of a state."""
    if not method.networks.is_divided:
        for name, network in method.networks.trained.items():
            save_model(network, str(folder / f"{name}.safetensors"))
        torch.save(method.optimizer.state_dict(), folder / "optimizer.pt")
    torch.save(method.schedule.state_dict(), folder / "scheduler.pt")
    torch.save(_generators(), folder / RNG)
    told = {"numbers": method.numbers, "metrics": history.metrics}
    (folder / STATE).write_text(json.dumps(told, allow_nan=False))


def load_state(method: OnlineMethod, checkpoint: Path) -> History:
    """Load the state of a checkpoint whose seal was verified; return its progress."""
    trained = method.networks.trained
    device = next(trained.parameters()).device
    if method.networks.is_divided:
        load_parts(trained, method.optimizer, checkpoint)
    else:
        for name, network in trained.items():
            load_model(network, str(checkpoint / f"{name}.safetensors"))
        method.optimizer.load_state_dict(_read(checkpoint / "optimizer.pt", device))
    method.schedule.load_state_dict(_read(checkpoint / "scheduler.pt", device))
    generators = _read(checkpoint / RNG, torch.device("cpu"))
    torch.set_rng_state(generators["cpu"])
    if torch.cuda.is_available():
        torch.cuda.set_rng_state_all(generators["cuda"])
    told = json.loads((checkpoint / STATE).read_bytes())
    method.numbers.update(told["numbers"])
    return History(step=checkpoint_step(checkpoint), metrics=told["metrics"])


def _generators() -> dict[str, Any]:
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return {"cpu": torch.get_rng_state(), "cuda": cuda}


def _read(path: Path, device: torch.device) -> Any:
    return torch.load(path, map_location=device, weights_only=True)
