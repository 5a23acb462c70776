"""A taxonomy of what users are after, from YAML: the classes of which each should have prompts.

A file has a list of `intentions`, each with a `name` and a `description`, which the judge reads.
"""

from dataclasses import dataclass
from pathlib import Path

from pydantic import Field, ValidationError

from ...configs.read import parse_yaml
from ...configs.schema import ConfigError
from ...configs.section import Section

TAXONOMIES = Path(__file__).parent / "intentions"


class Intention(Section):
    """One class; its name stands on a line of the judge's reply, so it has no marks."""

    name: str = Field(pattern=r"^\w[\w -]*$", max_length=80)
    description: str = Field(min_length=1, pattern=r"^[^\n\r]*$")


class _Document(Section):
    intentions: tuple[Intention, ...] = Field(min_length=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Taxonomy:
    """The classes, in the file's order."""

    intentions: tuple[Intention, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """What the classes are called."""
        return tuple(intention.name for intention in self.intentions)

    @property
    def shown(self) -> str:
        """The classes as a template shows them, one a line."""
        return "\n".join(f"- {entry.name}: {entry.description}" for entry in self.intentions)

    def named(self, text: str) -> str | None:
        """Return the class that is called so, in capitals or not; None if there is none."""
        wanted = text.casefold()
        return next((name for name in self.names if name.casefold() == wanted), None)


def shipped_taxonomies() -> tuple[str, ...]:
    """Return the names of the taxonomies that come with the package."""
    return tuple(sorted(path.stem for path in TAXONOMIES.glob("*.yaml")))


def load_taxonomy(name_or_path: str) -> Taxonomy:
    """Read a shipped taxonomy by its name, or a YAML file by its path.

    Raises:
        ConfigError: if there is no such file, or it is no list of named classes; names the file.
    """
    is_shipped = name_or_path in shipped_taxonomies()
    path = TAXONOMIES / f"{name_or_path}.yaml" if is_shipped else Path(name_or_path)
    try:
        document = _Document.model_validate(parse_yaml(path.read_text(encoding="utf-8")))
    except OSError as error:
        names = ", ".join(shipped_taxonomies())
        raise ConfigError(
            f"{path}: no taxonomy of intentions can be read ({error.strerror}); shipped are {names}"
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8 text") from error
    except ValidationError as error:
        raise ConfigError(f"{path}: {_fault(error)}") from error
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
    taxonomy = Taxonomy(intentions=document.intentions)
    folded = [name.casefold() for name in taxonomy.names]
    twice = next((name for name in folded if folded.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(f"{path}: the class {twice!r} stands there twice")
    return taxonomy


def _fault(error: ValidationError) -> str:
    """Return the first mistake, and what a file must look like."""
    item = error.errors()[0]
    place = ".".join(str(part) for part in item["loc"])
    return (
        f"{place or 'the file'}: {item['msg']}; write a list of two or more 'intentions', each "
        "with a name of letters, digits, blanks and hyphens, and a description of one line"
    )
