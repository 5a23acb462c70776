"""A Ray job: it runs the loop on a cluster that is there, and its models in actors.

Ray ends a job three seconds after its SIGTERM unless it is told otherwise, and starts none again:
the same script continues the run. `ray job submit` quotes an entrypoint as Windows does, so the
job is submitted by the interface in Python.
"""

from pprint import pformat
from typing import Any

from ...configs.schema import RunConfig
from .launching import GRACE_S, Allocation, LaunchedRun

PROGRAM = ("python", "-P", "-m", "lpfloop")
"""By name: what is called so on the nodes of the cluster."""


def ray_script(run: LaunchedRun, config: RunConfig, allocation: Allocation) -> str:
    """Return a Python script that submits the loop to the cluster that RAY_ADDRESS names.

    The job itself has the GPUs of a node if it trains there.
    """
    job: dict[str, Any] = {
        "entrypoint": run.script(PROGRAM),
        "entrypoint_num_cpus": allocation.cpus,
        "entrypoint_num_gpus": 0 if config.training.launcher == "ray" else allocation.gpus,
        "metadata": {"lpfloop_run": run.name},
        "runtime_env": {"env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": str(GRACE_S)}},
    }
    return (
        "from ray.job_submission import JobSubmissionClient\n\n"
        f"job = {pformat(job, sort_dicts=False, width=100)}\n\n"
        "print(JobSubmissionClient().submit_job(**job))\n"
    )
