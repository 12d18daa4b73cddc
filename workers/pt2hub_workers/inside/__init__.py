"""Code that runs in a worker's child processes, where users' code runs too.

It knows files and a channel to the parent, and neither the server, the database nor the storage: a child
has no credentials. An import contract keeps it so.
"""
