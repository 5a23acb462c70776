"""How good a policy, a judge or a reward model is: measures, comparisons, probes, plots."""
