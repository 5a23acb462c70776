"""Who judges whether a reference supports what an answer states, and how (FActScore)."""

from typing import ClassVar, Literal, Self

from pydantic import model_validator

from .section import Devices, Place, Section, cosmetic, semantic


class EntailmentConfig(Section):
    """The model that says whether one text follows from another (natural language inference)."""

    model: Place | None = semantic(
        None, "a folder with a sequence classifier that has a label 'entailment'"
    )
    batch_size: ClassVar[int] = 32
    """Pairs of texts in one forward pass."""
    max_length: int = semantic(
        512, "a longer reference is read in windows that overlap, in tokens", ge=64
    )
    dtype: ClassVar[Literal["auto"]] = "auto"
    """bfloat16 on a GPU, float32 on a CPU."""
    devices: Devices = cosmetic(
        "auto", "GPUs that it runs on, by number, such as [0, 1]; auto: all that are visible"
    )


class FactsConfig(Section):
    """An answer's statements, judged one by one against the reference (Min et al., 2023)."""

    judge: Literal["critic", "nli", "sentence_match", "none"] = semantic(
        "critic",
        "who judges an answer's statements: critic, nli, sentence_match (equal sentences; the tiny "
        "world's prompts alone) or none; a run without a critic has none",
    )
    nli: EntailmentConfig = EntailmentConfig()
    most: int = semantic(200, "statements of an answer that are judged; later ones are not", ge=1)
    together: int = semantic(1, "statements in one question to the critic", ge=1, le=50)
    templates: str = semantic("factscore", "name of a shipped set of templates, or a folder")

    @model_validator(mode="after")
    def _nli_by_a_model(self) -> Self:
        if self.judge == "nli" and self.nli.model is None:
            raise ValueError(
                "judge: nli needs a model: name its folder with facts.nli.model, or set judge to "
                "critic or none"
            )
        return self
