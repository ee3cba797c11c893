"""How long an epoch takes over widths, and how sure that is: pure arithmetic."""
