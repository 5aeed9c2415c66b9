"""Delta programs: assembling them, and the machine that runs them."""
