# pyright: basic
"""Policy, reference and value model over one frozen body, with separate adapters.

The reference is the body without adapters, the policy the body with one adapter, the value model
the body with another one and its own head. The trained weights are about a hundredth of the body's.
The value model cannot begin as a reward model, because reward models have another backbone.
"""

import copy
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel, get_peft_model
from peft.tuners.lora import LoraLayer
from peft.utils.integrations import dequantize_module_weight
from torch import Tensor, nn
from transformers import PreTrainedConfig

from ...stores.keys import derive_seed
from ..trainers.adapters import frozen_arguments, peft_config, published_type, save_config
from ..trainers.job import TrainJob
from ..trainers.rounding import rounded_at_random
from ..trainers.trl_trainer import load_model
from .networks import ValueModel, in_main_memory, trainable

POLICY, VALUE = "policy", "value"
BASE, ADAPTER = ".base_layer", ".lora_"
"""Parts of peft's names for a layer's own weights and its adapters'."""


class SharedBody:
    """Networks that share one model on the device; a block selects one of them.

    Blocks may be nested: the end of one switches the adapters back. `trained` holds exactly the
    trained networks.
    """

    is_sharded = False

    def __init__(self, job: TrainJob, device: torch.device, *, valued: bool) -> None:
        self._job = job
        body = load_frozen(job, job.model, device)
        self._width = body.config.get_text_config().hidden_size
        self._model = adapted_body(body, job, (POLICY, VALUE) if valued else (POLICY,))
        self._body: Any = trainable(self._model.get_base_model(), job, device)
        self._reference = load_frozen(job, job.reference, device) if job.reference else None
        self.trained = nn.ModuleDict({POLICY: self._adapter(POLICY)})
        if valued:
            self._value = ValueModel(self._body.base_model, self._width)
            self._value.head.to(device)
            self.trained[VALUE] = self._adapter(VALUE)
            self.trained["head"] = self._value.head

    @contextmanager
    def policy(self) -> Generator[Any]:
        """Yield the body as the policy."""
        with self._use_adapter(POLICY):
            yield self._body

    @contextmanager
    def reference(self) -> Generator[Any]:
        """Yield the body as the reference policy, or the separate reference model."""
        if self._reference is not None:
            yield self._reference
            return
        with self._model.disable_adapter():
            yield self._body

    @contextmanager
    def value(self) -> Generator[ValueModel]:
        """Yield the value model, with the body as its backbone."""
        with self._use_adapter(VALUE):
            yield self._value

    @contextmanager
    def _use_adapter(self, name: str) -> Generator[None]:
        before: Any = self._model.active_adapter
        self._model.set_adapter(name)
        try:
            yield
        finally:
            self._model.set_adapter(before)

    @property
    def config(self) -> PreTrainedConfig:
        """The policy's configuration, as for its merged weights."""
        config = copy.deepcopy(self._body.config)
        # The body may be quantised; the merged weights are not.
        if hasattr(config, "quantization_config"):
            del config.quantization_config
        return config

    def weights(self) -> dict[str, Tensor]:
        """Return the policy's merged weights, each a copy: the body's own bits stay as they are."""
        layers = {n: m for n, m in self._body.named_modules() if isinstance(m, LoraLayer)}
        plain = {name.replace(BASE, ""): value for name, value in own_weights(self._body)}

        def whole(name: str, value: Tensor) -> Tensor:
            layer = layers.get(name.removesuffix(".weight"))
            kind = published_type(self._job)
            if layer is None:
                return value.to(kind)
            # The change is smaller than half a step of 16 bits: to nearest would undo it.
            seed = derive_seed(self._job.seed, "rollout", name)
            return rounded_at_random(merge_adapter(layer, POLICY), kind, seed)

        return in_main_memory(self._body, plain, whole)

    def save(self, folder: Path) -> None:
        """Save the policy's adapter, as peft names it, and the configuration of the body."""
        self._model.save_pretrained(str(folder), selected_adapters=[POLICY])
        for path in sorted((folder / POLICY).iterdir()):
            path.rename(folder / path.name)
        (folder / POLICY).rmdir()
        save_config(self._model, folder)

    def _adapter(self, name: str) -> nn.ParameterDict:
        """Return an adapter's weights by name, with slashes for dots, as modules require."""
        return nn.ParameterDict(
            {
                path.replace(".", "/"): weight
                for path, weight in self._body.named_parameters()
                if path.endswith(f".{name}.weight") and ADAPTER in path
            }
        )


def load_frozen(job: TrainJob, folder: Path, device: torch.device) -> Any:
    """Load a model without gradients, in the type in which a body is held."""
    model: Any = load_model(job, folder, frozen_arguments(job))
    return model.to(device).eval().requires_grad_(requires_grad=False)


def adapted_body(body: Any, job: TrainJob, names: Sequence[str]) -> PeftModel:
    """Give a model adapters that have no effect yet; the job's seed decides their weights."""
    config = peft_config(job.fit, "CAUSAL_LM")
    assert config is not None  # noqa: S101 -- a job with adapters
    first, *others = names
    with torch.random.fork_rng():
        torch.manual_seed(derive_seed(job.seed, "adapters"))
        model: Any = get_peft_model(body, config, adapter_name=first)
        for name in others:
            model.add_adapter(name, config)
    return model


def own_weights(body: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the weights and lasting buffers of a body, without its adapters."""
    kept = {name for name, _ in body.named_parameters(remove_duplicate=False)}
    kept |= {name for name, _ in body.named_buffers(remove_duplicate=False)}
    for name, value in body.state_dict().items():
        if name in kept and ADAPTER not in name:
            yield name, value


def merge_adapter(layer: Any, adapter: str) -> Tensor:
    """Return W + s·BA of a layer, summed in float32."""
    base = dequantize_module_weight(layer.get_base_layer())
    return base.detach().float() + layer.get_delta_weight(adapter).detach().float()
