"""Wires the rooms into programs. One file per program: `local` is a whole cluster in this process.

Nothing is imported here: `config` is also used where neither a server nor a client may be loaded.
"""
