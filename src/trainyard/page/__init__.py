"""The page of jobs: it shows the jobs of a cluster, or of the history, to the person at this machine.

- access.py      routes, and which requests are refused because of their headers; pure
- sessions.py    invitations, sessions, download tickets; pure but for randomness
- assets.py      the files of the page, in static/
- observation.py the jobs and pods of the cluster, watched while a page is open
- job_list.py, job_progress.py, job_pages.py, log_ranges.py, log_stream.py   what pages show
- series.py      curves, of what programs have reported; event_series.py and tfevents.py: of event files
- live.py        one open page: subscriptions and frames
- actions.py     what changes a job, for pages that may
- http.py        the answers to all routes, by aiohttp
- forward.py     the TensorBoard of a job at a port of its own; pod_requests.py: one request to it
- listener.py    the listener on loopback, which imports all this when the first browser connects
- running_servers.py where `trainyard ui` finds the page servers of this user

One route changes something in the cluster, for pages that were opened by a link of `trainyard ui --write`. What a job,
a replica and a diagnosis are is worked out in `views`, as for the commands.

This file imports nothing: `running_servers` is for commands that have no server.
"""
