"""The training's code: found, copied, digested."""
