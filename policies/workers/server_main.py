"""The process that serves a model: `python -m lpfloop.policies.workers.server_main`.

It becomes vLLM's OpenAI-compatible server, under the arguments with which a run's engine opens the
same model. When its input closes, because whoever started it is gone, it ends with all processes of
its group.
"""

# pyright: basic

import json
import os
import runpy
import signal
import sys
import threading

from ...configs.schema import EngineConfig
from ..engines.vllm_engine import engine_arguments

SERVER = "vllm.entrypoints.openai.api_server"


def flags(arguments: dict[str, object]) -> list[str]:
    """Return an engine's arguments as options of a command line."""
    found: list[str] = []
    for name, value in arguments.items():
        option = name.replace("_", "-")
        match value:
            case None:
                continue
            case True:
                found.append(f"--{option}")
            case False:
                found.append(f"--no-{option}")
            case _:
                found.append(f"--{option}={value}")
    return found


def end_with_parent() -> None:
    """Wait until the input closes, then end this process and those that it started."""
    while os.read(0, 4096):
        pass
    os.killpg(0, signal.SIGKILL)


def main(model: str, config: EngineConfig, more: list[str]) -> None:
    """Serve a model until this process is told to end."""
    from vllm.platforms import current_platform

    threading.Thread(target=end_with_parent, daemon=True).start()
    arguments = engine_arguments(model, config, on_cpu=current_platform.is_cpu())
    sys.argv[1:] = [*flags(arguments), *more]
    runpy.run_module(SERVER, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    told = json.loads(sys.argv[1])
    main(told["model"], EngineConfig.model_validate(told["engine"]), told["options"])
