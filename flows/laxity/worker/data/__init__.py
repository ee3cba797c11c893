"""The data of a training: shares of it, and how many bytes are read and written."""
