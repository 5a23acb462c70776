"""How much memory a device needs for a stage, computed before anything is loaded."""
