"""Make and run models: sampling engines, their worker processes, trainers and checkpoints."""
