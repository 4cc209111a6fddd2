"""Converts options to the spelling of the installed torch: --nproc-per-node or --nproc_per_node."""


def spelled(argv, options):
    """The arguments, with every option before the script in the spelling that this torch accepts. `options`:
    {spelling: takes a value}."""
    words, at = [], 0
    while at < len(argv) and argv[at].startswith("-"):
        name, equals, value = argv[at].partition("=")
        known = name if name in options else name[:2] + name[2:].replace("-", "_")
        words.append(known + equals + value if known in options else argv[at])
        if options.get(known) and not equals:
            words += argv[at + 1 : at + 2]
            at += 1
        at += 1
    return words + argv[at:]


def options_of(parser):
    """{spelling: takes a value} of an argument parser."""
    return {name: action.nargs != 0 for name, action in parser._option_string_actions.items()}
