"""Small pods that a real kubelet and our node run: what each shows of them is compared field by field.

- rows.py: the pods, and what is done to each while it runs
- follower.py: follows pods and their events by watch, and does the steps of a row
- trace.py: what was to be observed, without names, times and identifiers of one run
- kept.py: the answers of a real kubelet in testdata/pod_table, and how a trace differs from them
- __main__.py: runs the table on any cluster, and writes its answers
"""
