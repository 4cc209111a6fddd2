"""The programs: each connects the packages below `app`. One module per program: `local` is a whole cluster in this
process, `operating` the operator, `node_agent` a node of another cluster.

This file imports nothing: `config` is also used by commands that must not import a server or a client.
"""
