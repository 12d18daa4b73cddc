"""Workers: take builds off the queue, run their steps in child processes, publish what is proven."""
