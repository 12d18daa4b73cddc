"""`pt2hub up`: database, API and worker on one machine under one supervisor."""
