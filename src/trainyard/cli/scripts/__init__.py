"""Jobs without a manifest: a script and a few options become one.

command_line: what of the words is ours, and what belongs to the program
program:      the script, module or command that runs: its command line, its folder, its name
frameworks:   the framework that a script imports
manifest:     the job for each framework
text:         a manifest with a comment for each field
making:       all of it, for `run` and `init`
"""
