"""Machine code of the kernels: where it is, and how it comes to be there."""
