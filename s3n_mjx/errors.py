"""The one error that is a user's to mend."""


class UserError(Exception):
    """Something the user gave is wrong; the message is one line that a person can act on.

    It says what is wrong, where (file, joint, key) and what to do. Command lines print it
    to stderr and exit with code 2 (see :mod:`s3n_mjx.cli`); library callers may catch it.
    Whatever names and values it quotes, it stays one printable line that can be read.
    """

    def __init__(self, message: str):
        super().__init__(_one_line(message))


_LONGEST = 1000  # characters


def _one_line(text: str) -> str:
    if len(text) > _LONGEST:
        # The beginning says where, the end what to do.
        text = f"{text[: _LONGEST - 205]} ... {text[-200:]}"
    if text.isprintable():
        return text
    # A person's file may hold line breaks, terminal codes or half a surrogate pair.
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


class Terminated(KeyboardInterrupt):
    """SIGTERM stopped the work in good order; says what there is to go on from."""
