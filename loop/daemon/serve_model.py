"""Serving a model of a run to other programs, until Ctrl-C."""

import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib.util import find_spec
from types import FrameType

from ...configs.schema import ConfigError
from ...policies.devices import driver_gpus
from ...policies.endpoint.endpoint import api_key
from ...policies.workers.identity import check_folder
from ...policies.workers.serve import ModelServer, require_free
from ...stores.installation import vllm_command
from ...stores.lake import RunReader
from ...stores.records import Checkpoint
from ..lake.trace.published_model import configuration, verified_model

ENDING = (signal.SIGTERM, signal.SIGHUP)


def serve_model(
    run: RunReader, checkpoint: Checkpoint, host: str, port: int, say: Callable[[str], None]
) -> None:
    """Serve a model by vLLM's server until this process gets a signal to end.

    Raises:
        ConfigError: if vLLM is not installed, or the address cannot be used.
        DamagedError: if the model is damaged.
        EngineError: if the server ends without such a signal.
        NoSuchRunError: if its weights are not here.
    """
    if find_spec("vllm") is None:
        install = vllm_command(on_gpu=bool(driver_gpus()))
        raise ConfigError(
            f"--serve needs vLLM, which is not installed: install it ({install}), or serve a copy "
            "(--copy DIR) by another program"
        )
    require_free(host, port)
    folder = verified_model(run, checkpoint)
    check_folder(folder)
    engine = configuration(run).policy.engine
    name = f"{run.folder.name}/{checkpoint.name}"
    say(f"starting vLLM's server of {name}, which takes a while; Ctrl-C ends it")
    with _end_on_signal():
        server = ModelServer(str(folder), engine, name=name, host=host, port=port)
        try:
            server.wait_until_ready()
            key = "; clients must send LPFLOOP_API_KEY" if api_key(engine) else ""
            say(f"serving {name} at {server.url}, for example as --critic {server.url}{key}")
            server.wait()
        except KeyboardInterrupt:
            say("ending the server")
        finally:
            server.close()


@contextmanager
def _end_on_signal() -> Generator[None]:
    """Let SIGTERM and a lost terminal end this process as Ctrl-C does."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
