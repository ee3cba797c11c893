"""How fast decisions become running pods."""
