"""The loop itself: a job, a suite of variants, control, status, logs, launchers, the doctor."""
