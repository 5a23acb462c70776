"""Judge text: the rubric feedback model, reply parsing, verifiers and reward scoring."""
