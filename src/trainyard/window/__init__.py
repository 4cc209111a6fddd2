"""The window: a page that shows the jobs of a cluster, or of the history, to the person at this machine.

- access.py      routes, and which requests are refused because of their headers; pure
- sessions.py    invitations, sessions, download tickets; pure but for randomness
- assets.py      the files of the page, in static/
- observation.py the jobs and pods of the cluster, watched while a page is open
- job_list.py, job_progress.py, job_pages.py, log_files.py, log_lines.py   what pages show
- series.py      curves, of what programs have reported; event_series.py and tfevents.py: of event files
- live.py        one open page: subscriptions and frames
- http.py        the answers to all routes, by aiohttp
- listener.py    the listener on loopback, which imports all this when the first browser connects
- registry.py    where `trainyard ui` finds the windows of this user

The page only reads: there is no route that changes anything in the cluster. What a job, a replica and a diagnosis are
is worked out in `views`, as for the commands.
"""

from trainyard.window.listener import Window
from trainyard.window.options import ClaimFolders, WindowOptions

__all__ = ["ClaimFolders", "Window", "WindowOptions"]
