"""The loop itself: a job, a suite of recipes, control, status, logs, launchers, the doctor."""
