"""The one kind of error that a user can mend."""


class PermafrostError(Exception):
    """Something the user can put right: what is wrong, with which value, and how to mend it.

    Stages print it in place of a traceback and exit with 1.
    """

    def __init__(self, what: str, mend: str | None = None) -> None:
        super().__init__(what if mend is None else f"{what}\n  to mend: {mend}")
        self.what = what
        self.mend = mend
