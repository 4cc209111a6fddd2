"""A differential fuzzer: the same requests to the real API server and to the embedded one, answers compared.

    steps.py      a sequence of requests as a plain value; what one step needs of earlier answers is a reference
    bodies.py     objects to send: good, nearly good, bad; and the definitions of the custom resources
    generate.py   a seeded sequence
    target.py     a server that plays sequences, each in a namespace of its own
    normal.py     answers without what differs from run to run: uids, times, versions, generated names
    compare.py    differences of two normalized answers, and the table of those that are allowed
    shrink.py     the shortest sequence that still shows a difference
    fuzz.py       many sequences on two servers; what was found, by cause
    cases.py      kept sequences with the real server's answers: testdata/differential

Rules: nothing here knows how either server works; nothing in a sequence depends on when or where it is played.
"""
