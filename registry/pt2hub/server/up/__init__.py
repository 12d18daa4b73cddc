"""`pt2hub up`: one command, one machine: database, API and a worker under one supervisor."""
