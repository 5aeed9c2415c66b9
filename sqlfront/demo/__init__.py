"""The demonstration: TPC-H orders stream in while six views stay equal to their queries."""
