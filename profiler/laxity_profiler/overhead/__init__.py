"""What stops and starts cost, part by part."""
