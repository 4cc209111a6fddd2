"""The drop-in test: our operator beside the operators that it replaces, on the same manifests and the same pods.

- scenarios.py and `scenarios_*.py`: what is submitted, and what then happens to the pods. Tables of values.
- driver.py runs one scenario against any API server; snapshot.py reads what the operator has made, normalised.
- operators.py starts an operator: Kubeflow's training-operator, Kubeflow's mpi-operator, or ours.
- operators_build.py builds the two of Kubeflow from their Go modules, once per machine.
- recordings.py: the answers of Kubeflow's operators, `testdata/drop_in/KIND/SCENARIO.json`, so that the comparison
  needs no Go. `python -m tests.drop_in record` (record.py) writes them anew.
- replay.py gets our operator's answers to the recorded scenarios.
- compare.py lists the differences of two runs; differences.py has those that are accepted, each with its reason.
"""
