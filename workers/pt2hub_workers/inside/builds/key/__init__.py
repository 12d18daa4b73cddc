"""The program key: everything that shapes compiled code."""
