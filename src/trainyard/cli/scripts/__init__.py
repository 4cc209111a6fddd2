"""Jobs without a manifest: `trainyard run` and `init` make a manifest of a script and a few options.

command_line: splits the arguments into options of trainyard and the command line of the program
program:      the script, module or command that runs: its command line, its directory, the name of its job
frameworks:   the framework that a script imports; the kind of the framework makes the job (Kind.scripts)
commented_yaml: YAML of a manifest, with a comment for each field
job_maker:    combines them for `run` and `init`
local_image:  checks for the image that stands for this machine
"""
