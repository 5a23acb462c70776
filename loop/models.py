"""The models of a run, each in a process of its own that is started when it is first needed.

The policy's engine is replaced when the checkpoint changes: a new process on the new weights can
not hold anything of the old ones. Policy and critic share one engine while they are the same
weights under the same settings, as M_0 and the feedback model are in the first iteration.
"""

import logging
from dataclasses import dataclass, field
from pathlib import Path

from ..configs.load import semantic
from ..configs.schema import EngineConfig, RunConfig
from ..policies.canary import prove, read_canary
from ..policies.engine import Engine, EngineError, Scorer
from ..policies.identity import model_digest
from ..policies.open import engine_kind, open_engine, open_scorer
from ..stores.keys import Json, digest

TINY_MODELS = Path(__file__).parent / "tiny" / "models"
NO_MODEL = "none"

logger = logging.getLogger("lpfloop.models")


def located(model: str, part: str = "policy") -> str:
    """Return the folder or URL that a configured model name means."""
    return str(TINY_MODELS / part) if model == "tiny" else model


def is_endpoint(model: str) -> bool:
    """Whether the model is served elsewhere, so that its weights are not at hand."""
    return model.startswith(("http://", "https://"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A model and how it is run; equal values can share one engine.

    `canary` is where the trainer left the numbers by which an engine proves that it runs these
    weights; None for weights that were not trained here.
    """

    identity: str
    location: str
    engine: EngineConfig
    canary: Path | None = None

    @property
    def params(self) -> Json:
        """What of this can change a completion."""
        return {
            "model": self.identity,
            "kind": engine_kind(self.location, self.engine),
            "dtype": self.engine.dtype,
            "max_model_len": self.engine.max_model_len,
            "script": self.engine.script,
        }


@dataclass(kw_only=True)
class Models:
    """Opens engines on demand, keeps those still of use, closes them all at the end."""

    config: RunConfig
    logs: Path
    initial: Served
    feedback: Served
    reward_id: str | None
    _engines: dict[str, Engine] = field(default_factory=dict[str, Engine], init=False)
    _scorer: Scorer | None = field(default=None, init=False)

    @classmethod
    def of(cls, config: RunConfig, logs: Path) -> "Models":
        """Identify the configured models; nothing is loaded yet.

        Raises:
            EngineError: for a folder that holds no model, or an endpoint that does not answer.
        """
        policy, critic = located(config.policy.model), located(config.critic.model)
        reward = None
        if config.reward.model != NO_MODEL:
            reward = model_digest(located(config.reward.model, "reward"), EngineConfig())
        return cls(
            config=config,
            logs=logs,
            initial=Served(
                identity=model_digest(policy, config.policy.engine),
                location=policy,
                engine=config.policy.engine,
            ),
            feedback=Served(
                identity=model_digest(critic, config.critic.engine),
                location=critic,
                engine=config.critic.engine,
            ),
            reward_id=reward,
        )

    def engine(self, served: Served) -> Engine:
        """Return a running engine of `served`; engines that no stage will use again are closed.

        Raises:
            StaleWeightsError: if it does not run the weights that were published.
        """
        name = _name(served)
        if name not in self._engines:
            self._close_all_but({_name(self.feedback)})
            if self.config.exclusive:
                self._close_all_but(set())
                self._close_scorer()
            log = self.logs / f"engine-{name[:12]}.log"
            self._engines[name] = _proved(
                open_engine(served.location, served.engine, log=log), served
            )
        return self._engines[name]

    def scorer(self) -> Scorer:
        """Return the running reward model."""
        if self._scorer is None:
            if self.config.exclusive:
                self._close_all_but(set())
            folder = Path(located(self.config.reward.model, "reward"))
            self._scorer = open_scorer(folder, self.config.reward, log=self.logs / "reward.log")
        return self._scorer

    def configure(self, config: RunConfig) -> None:
        """Take over live settings of the engines, from their next request on."""
        self.config = config
        feedback = _name(self.feedback)
        for name, engine in self._engines.items():
            engine.configure(config.critic.engine if name == feedback else config.policy.engine)

    def make_room(self) -> None:
        """Close what would stand in the way of training on the same device."""
        self._close_all_but(set() if self.config.exclusive else {_name(self.feedback)})
        if self.config.exclusive:
            self._close_scorer()

    def close(self) -> None:
        """Close every engine."""
        self._close_all_but(set())
        self._close_scorer()

    def _close_all_but(self, kept: set[str]) -> None:
        for name in [name for name in self._engines if name not in kept]:
            self._engines.pop(name).close()

    def _close_scorer(self) -> None:
        if self._scorer is not None:
            self._scorer.close()
            self._scorer = None


def _proved(engine: Engine, served: Served) -> Engine:
    """Return the engine if it runs the weights that the trainer measured; else close it."""
    if served.canary is None:
        return engine
    rows = read_canary(served.canary)
    if not rows:
        logger.warning("%s has no canary: nothing but its hash proves the weights", served.location)
    try:
        prove(engine, rows)
    except EngineError:
        engine.close()
        raise
    return engine


def _name(served: Served) -> str:
    return digest({"params": served.params, "engine": semantic(served.engine)})
