"""What a job costs the API server (docs/rules.md S17).

Counted at the server's own table of verbs. The operator is the only one who patches TfJobs and their status and who
makes Jobs, Services and ConfigMaps here; that nothing else of it is missed is shown by what its connection has sent.
"""

from __future__ import annotations

from tests.stories.harness import CONFIG_MAP, JOB, SERVICE, Harness, looked, replicas, tf_job

OPERATORS = (
    ("patch", "tfjobs"),
    ("patch", "tfjobs/status"),
    ("create", "jobs"),
    ("create", "services"),
    ("create", "configmaps"),
    ("delete", "jobs"),
    ("delete", "services"),
)


async def test_a_job_without_failures_costs_one_request_per_object_and_five(harness: Harness) -> None:
    """The README's job: a master, a worker and two default parameter servers."""
    operator, api = await harness.operator()
    before, sent = harness.cluster.requests(), len(api.sent)
    await harness.submit(tf_job(replicas("MASTER"), replicas("WORKER"), {"replicas": 2, "tfReplicaType": "PS"}))
    await harness.until_holds(lambda: harness.running() == {"master": 1, "worker": 1})
    counts = {gvk.kind: len(await harness.children(gvk)) for gvk in (JOB, SERVICE, CONFIG_MAP)}
    assert counts == {"Job": 4, "Service": 1, "ConfigMap": 1}
    await (await harness.controlled_pod("master")).exit(0)
    await harness.condition("Succeeded")
    await looked(operator)

    after = harness.cluster.requests()
    cost = {verb: after[verb] - before[verb] for verb in OPERATORS}
    assert sum(cost.values()) == len(api.writes)
    assert {request.method for request in api.sent[sent:] if request.method != "GET"} == {"POST", "PATCH"}
    assert [
        request.path for request in api.sent[sent:] if request.method == "GET" and "watch" not in dict(request.query)
    ] == []
    counts_only = [
        write for write in api.writes if write.path.endswith("/status") and b"conditions" not in (write.body or b"")
    ]
    assert sum(cost.values()) - len(counts_only) <= sum(counts.values()) + 5, cost
    assert cost["patch", "tfjobs"] == 1


async def test_a_hundred_reconciles_of_a_running_job_send_no_requests(harness: Harness) -> None:
    operator, api = await harness.operator()
    await harness.submit(tf_job())
    await harness.status_counts_every_replica()
    await looked(operator)
    sent = len(api.sent)
    for _ in range(100):
        operator.resync()
    await looked(operator)
    assert api.sent[sent:] == []
