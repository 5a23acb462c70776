"""Training in a child process: the job, its checkpoints, its faults, TRL's trainers."""
