"""A project of its own: nothing here is installed, and all paths are relative to its folder."""
