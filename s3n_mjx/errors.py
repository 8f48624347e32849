"""The one error that is a user's to mend."""


class UserError(Exception):
    """Something the user gave is wrong; the message is one line that a person can act on.

    It says what is wrong, where (file, joint, key) and what to do. Command lines print it
    to stderr and exit with code 2 (see :mod:`s3n_mjx.cli`); library callers may catch it.
    """
