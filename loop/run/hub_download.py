# pyright: basic
"""Fetching models and data sets into the hub's cache, on request of a command line."""

from collections.abc import Sequence

from ...configs.schema import ConfigError
from ...configs.secrecy import redacted
from ...stores.hub_cache import HubName, cache_folder
from ...stores.installation import pip_install
from .terminal import say

WEIGHTS = ("*.safetensors", "*.json", "*.jinja", "*.txt", "*.model", "*.tiktoken")
NOT_WEIGHTS = ("*/*", "consolidated*")
"""Other formats' folders, and Mistral's second copy of the same weights."""
ROWS = ("*.parquet", "*.arrow", "*.jsonl", "*.ndjson", "*.json", "*.csv", "*.tsv")


def fetch(names: Sequence[HubName]) -> None:
    """Fetch the files that the cache lacks, except code and pickles.

    Raises:
        ConfigError: if the hub refuses the download or cannot be reached.
    """
    for name in names:
        say(f"fetching {name.written} into {cache_folder()}")
        try:
            _fetch(name)
        except ImportError as error:
            raise ConfigError(
                f"--download needs huggingface_hub: {pip_install('huggingface-hub')}"
            ) from error


def _fetch(name: HubName) -> None:
    from huggingface_hub import errors, snapshot_download

    is_model = name.kind == "model"
    inside = (f"*{name.inside}*",) if name.inside else ROWS
    try:
        snapshot_download(
            name.repo,
            repo_type=name.kind,
            revision=name.revision,
            cache_dir=cache_folder(),
            allow_patterns=list(WEIGHTS if is_model else inside),
            ignore_patterns=list(NOT_WEIGHTS if is_model else ("*.py",)),
        )
    except errors.GatedRepoError as error:
        raise ConfigError(
            f"{name.written}: the hub requires you to accept its terms: accept them on its page, "
            "and set HF_TOKEN to your token"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise ConfigError(
            f"{name.written}: no {_kind(name)} of this name on the hub that you may read; correct "
            "it, or set HF_TOKEN for a private one"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise ConfigError(f"{name.written}: no revision {name.revision} on the hub") from error
    except errors.LocalEntryNotFoundError as error:
        offline = isinstance(error.__cause__, errors.OfflineModeIsEnabled)
        why = "HF_HUB_OFFLINE is set" if offline else "the hub cannot be reached"
        raise ConfigError(
            f"{name.written}: {why}, and {cache_folder()} does not hold all of it"
        ) from error
    except errors.HfHubHTTPError as error:
        said = redacted(str(error).partition("\n")[0])
        raise ConfigError(f"{name.written}: the hub refuses: {said}") from error
    except OSError as error:
        raise ConfigError(f"{name.written}: cannot be fetched: {redacted(str(error))}") from error


def _kind(name: HubName) -> str:
    return "model" if name.kind == "model" else "data set"
