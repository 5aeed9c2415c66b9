"""The kernels, what compiles them, and the layout of the memory that they share."""
