"""Everything that ordercast raises on purpose, by whose mistake it was."""


class OrdercastError(Exception):
    """The root of our errors: catching it catches nothing that is a bug of ours."""


class UsageError(OrdercastError):
    """The person at the keyboard gave us something wrong: one sentence says what and where.

    The command line turns it into that sentence and exit code 2.
    """


class TraceError(UsageError):
    """A trace folder or file that cannot be read: empty, cut, foreign, or of another version."""


class PeerError(OrdercastError):
    """A peer sent what its protocol forbids. It costs the peer its connection, nothing more."""


class DiskError(OrdercastError):
    """The durable store cannot keep a record. A member that cannot keep its word stops."""
