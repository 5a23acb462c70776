"""The stages of a run in which something is trained, and what measures the trained model."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ...configs.engines import EngineConfig
from ...configs.group_methods import OnlineSettings
from ...configs.grouped_recipes import Grouped
from ...configs.own_function import names_function
from ...policies.memory.engine_memory import transformers_parts, vllm_parts
from ...policies.memory.shapes import ModelShape, UnknownShapeError
from ...policies.memory.sharding import STAGES, WHOLE, Sharding, sharding_of
from ...policies.memory.training_memory import (
    PAIRED,
    REFERENCED,
    Workload,
    canary_parts,
    distillation_parts,
    online_parts,
    trl_parts,
)
from ...policies.memory.verdicts import Holding, StageMemory, fixed
from ...policies.trainers.job import ONLINE, Method, Settings
from ...policies.trainers.launch import processes_of
from ...policies.trainers.training_fit import placed_fit
from ..recipes.roles import NeededRole
from ..run.models import CRITIC, is_endpoint, is_rewarded, located
from .engine_stages import VLLM, EngineStages


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingStages:
    """Gives the stages of `methods`; `engines` knows what else is on a device."""

    engines: EngineStages
    methods: tuple[Method, ...]

    def stages(self) -> Iterator[StageMemory]:
        """Yield a stage for each training and, where a policy is trained, the canary's."""
        policy = next(role for role in self.engines.roles if role.name == "policy")
        if is_endpoint(policy.model):
            return  # No weights to train are here.
        try:
            shape = self.engines.shapes(Path(located(policy.model)))
            for method in self.methods:
                section = (f"training.{method}",)
                if method in ONLINE:
                    for found in self._online(method, policy, shape):
                        yield replace(found, sections=section)
                else:
                    begins = self._reward_start(shape) if method == "reward" else shape
                    found = self._offline(method, begins)
                    yield replace(found, sections=section)
            yield from self._canary(shape)
        except UnknownShapeError as error:
            for method in self.methods:
                yield self.engines.unknown(f"train by {method}", str(error))

    def _offline(self, method: Method, shape: ModelShape) -> StageMemory:
        config, settings = self.engines.config, self._settings(method)
        training = config.training
        sharding = self._sharding(settings)
        stage = f"train by {method}"
        if sharding.unknown:
            return self.engines.unknown(stage, sharding.unknown)
        later = config.iterations > 1 and training.reference == "initial"
        work = Workload(
            method=method,
            rows=settings.micro_batch_size * (2 if method in PAIRED else 1),
            length=settings.max_length,
            accumulation=settings.batch_size // (settings.micro_batch_size * sharding.processes),
            sharding=sharding,
            on_gpu=self.engines.have.on_gpu,
            fit=placed_fit(config),
            # A divided model cannot be asked as its own reference before it is trained; a teacher
            # is a model of its own, unless it is what lies below the adapters.
            reference=(method in REFERENCED and (later or "weights" in sharding.divided))
            or (method == "distil" and training.lora.r == 0),
            answer=config.policy.sampling.max_tokens if method == "distil" else 0,
        )
        parts = distillation_parts if method == "distil" else trl_parts
        return self._on_device(stage, parts(shape, work), sharding.processes)

    def _sharding(self, settings: Settings) -> Sharding:
        training = self.engines.config.training
        count = self._processes(settings)
        return sharding_of(training.accelerate_config, count, training.sharding)

    def _processes(self, settings: Settings) -> int:
        training = self.engines.config.training
        have = self.engines.have.of(training.devices)
        return processes_of(training, settings, len(have.cards))

    def _online(
        self, method: Method, policy: NeededRole, shape: ModelShape
    ) -> Iterator[StageMemory]:
        """Yield the training with its sampler beside it, and the sampler in its share of a GPU."""
        config, settings = self.engines.config, self._settings(method)
        assert isinstance(settings, OnlineSettings)  # noqa: S101 -- by its method
        answer = config.policy.sampling.max_tokens
        # Gradients of whole networks are averaged in place, without buckets.
        count, training = self._processes(settings), config.training
        divided = training.sharding != "none" and not training.lora.r and count > 1
        sharding = Sharding(processes=count, divided=STAGES[3] if divided else WHOLE)
        reward = self._reward(shape)
        work = Workload(
            method=method,
            rows=settings.micro_batch_size,
            length=settings.max_length,
            accumulation=1,
            sharding=sharding,
            on_gpu=self.engines.have.on_gpu,
            fit=placed_fit(config),
            reference=config.iterations > 1 and training.reference == "initial",
            answer=answer,
            reward_number=0 if reward is None else self.engines.reward_number(reward),
        )
        parts = online_parts(shape, reward, work)
        beside = self._shares_gpus(policy, count // training.nodes)
        if self.engines.kind(policy) == VLLM and self.engines.have.on_gpu:
            sampler = self._sampler(method, settings, policy, shape, beside=beside)
            yield sampler
            held = fixed("sampler", sampler.has_bytes)
            if not beside:
                yield from self._critic_beside_sampler(method, policy, held)
        else:
            held = self._transformers_sampler(settings, policy, shape)
        stage = f"train by {method}"
        others = [*([held] if beside else []), *self._critic_beside(count // training.nodes)]
        yield self._on_device(stage, [*parts, *others], sharding.processes)

    def _critic_beside(self, processes: int) -> Iterator[Holding]:
        """Yield what a critic here takes of the trainer's devices, if it rewards what is drawn."""
        critic = self._rewarding_critic
        if critic is not None and self._shares_gpus(critic, processes):
            yield from self.engines.held_by(critic)

    def _critic_beside_sampler(
        self, method: Method, policy: NeededRole, sampler: Holding
    ) -> Iterator[StageMemory]:
        """Yield what both take of a GPU on which nothing trains, if they share one."""
        critic, count = self._rewarding_critic, len(self.engines.have.cards)
        if critic is None or critic.engine is None or policy.engine is None:
            return
        sampled, judged = (
            frozenset(range(count) if engine.devices == "auto" else engine.devices)
            for engine in (policy.engine, critic.engine)
        )
        held = [*self.engines.held_by(critic)]
        if held and sampled & judged:
            have = self.engines.have.of(policy.engine.devices)
            yield StageMemory(
                stage=f"train by {method}: sampler and critic",
                device=have.name,
                has_bytes=have.memory,
                parts=(sampler, *held),
            )

    @property
    def _rewarding_critic(self) -> NeededRole | None:
        """The critic, if it rewards what a training draws."""
        recipe = self.engines.config.recipe
        if not (isinstance(recipe, Grouped) and recipe.rewards.critic):
            return None
        return next((role for role in self.engines.roles if role.name == CRITIC), None)

    def _shares_gpus(self, role: NeededRole, processes: int) -> bool:
        """Whether a model is on a GPU on which a process trains; on a CPU it always is."""
        training, engine = self.engines.config.training, role.engine or EngineConfig()
        count = len(self.engines.have.cards)
        if not count:
            return True
        trained = range(count) if training.devices == "auto" else training.devices
        sampled = range(count) if engine.devices == "auto" else engine.devices
        return bool({*trained[:processes]} & {*sampled})

    def _sampler(
        self,
        method: Method,
        settings: OnlineSettings,
        policy: NeededRole,
        shape: ModelShape,
        *,
        beside: bool,
    ) -> StageMemory:
        """Return vLLM's stage: in its share of a GPU where a process trains, else as it samples."""
        engine = policy.engine or EngineConfig()
        have = self.engines.have.of(engine.devices)
        part = settings.sampler_memory if beside else engine.memory_utilization
        setting = f"training.{method}.sampler_memory" if beside else "vLLM's share"
        hosting = self.engines.hosting(policy, shape)
        return StageMemory(
            stage=f"train by {method}: sampler",
            device=f"{setting} of {have.name}",
            has_bytes=round(part * have.memory),
            parts=tuple(vllm_parts(shape, hosting, have.memory)),
        )

    def _transformers_sampler(
        self, settings: OnlineSettings, policy: NeededRole, shape: ModelShape
    ) -> Holding:
        found = transformers_parts(
            shape,
            self.engines.hosting(policy, shape),
            rows=settings.rollouts,
            answer=self.engines.config.policy.sampling.max_tokens,
            on_gpu=self.engines.have.on_gpu,
        )
        return Holding(
            name="sampler",
            least_bytes=sum(part.least_bytes for part in found),
            most_bytes=sum(part.most_bytes for part in found),
        )

    def _canary(self, shape: ModelShape) -> Iterator[StageMemory]:
        """Yield the measurement of the trained policy, on the longest rows of its training.

        What does not fit onto the first GPU of the first node's processes lies on the next ones.
        """
        trained = [self._settings(method) for method in self.methods if method != "reward"]
        if not trained:
            return
        on_gpu = self.engines.have.on_gpu
        longest = max(settings.max_length for settings in trained)
        found = self._on_device(
            "measure the canary", canary_parts(shape, length=longest, on_gpu=on_gpu)
        )
        nodes = self.engines.config.training.nodes
        count = min(map(self._processes, trained)) // nodes if on_gpu else 1
        several = f"{count} GPUs" if count > 1 else found.device
        yield replace(found, device=several, has_bytes=count * found.has_bytes)

    def _reward(self, shape: ModelShape) -> ModelShape | None:
        """Return the reward model that an online method scores by; None for a function, or none."""
        config = self.engines.config
        if isinstance(config.recipe, Grouped):
            if not config.recipe.rewards.reward:
                return None
        elif not is_rewarded(config):
            return self._reward_start(shape).as_classifier()
        if names_function(config.reward.model):
            return None
        return self.engines.shapes(Path(located(config.reward.model, "reward")))

    def _reward_start(self, shape: ModelShape) -> ModelShape:
        """Return the model that a reward model begins as: the policy's, unless one is named."""
        named = self.engines.config.training.reward.model
        return shape if named is None else self.engines.shapes(Path(located(named)))

    def _settings(self, method: Method) -> Settings:
        settings: Settings = getattr(self.engines.config.training, method)
        return settings

    def _on_device(self, stage: str, parts: Sequence[Holding], processes: int = 1) -> StageMemory:
        """Return a stage on the first device; without a GPU a node's processes share its memory."""
        training = self.engines.config.training
        have = self.engines.have.of(training.devices)
        here = max(1, processes // training.nodes)
        return StageMemory(
            stage=stage,
            device=have.name,
            has_bytes=have.memory // (1 if have.on_gpu else here),
            parts=tuple(part for part in parts if part.most_bytes),
        )
