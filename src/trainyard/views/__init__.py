"""What a job, a replica and a diagnosis are, worked out once from API objects, for every command and page.

The values here say what is shown, not how: widths, colours and tables are those of the caller. All functions are pure:
`now` is a parameter. Every value is a struct whose JSON is `msgspec.to_builtins(value)`: field names in camelCase,
times in seconds since the epoch.

    job_view       JobView: the observed jobs and replicas; state, result, message and restarts of a job
    replica_view   ReplicaView: one pod as a replica of its job
    job_row        JobRow: a job in a list of jobs
    job_details    JobDetails: all about one job: roles, replicas, conditions, children, events
    comparison     what differs between the runs of jobs
    masking        secrets in env, which are shown nowhere
    event_view     EventView: an event
    diagnosis      why a job does not run or has failed: Diagnosis, a list of findings
    timeline       Lane: what a pod did when, from its status and the runs that the history recorded
    recorded       a record of the history as API objects
    output_lines   the output of a program as lines
    durations      durations as people read them
"""
