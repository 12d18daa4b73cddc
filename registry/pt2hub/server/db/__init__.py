"""PostgreSQL: schema, stores, queue, migrations, the embedded server."""
