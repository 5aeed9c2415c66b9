"""Tables as Python sees them."""
