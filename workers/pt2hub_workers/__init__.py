"""Workers: run builds and measuring jobs from the queue in child processes, and publish what passes verification."""
