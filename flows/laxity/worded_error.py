"""Errors whose message is all that its reader needs: shown as a sentence, without frames."""


class WordedError(Exception):
    """What the user declared, asked or trained cannot be: the message says what, where, what to do."""

    def _render_traceback_(self) -> list[str]:
        """Lines in place of a traceback, as IPython and Jupyter ask for them."""
        return [f"{type(self).__name__}: {self}"]
