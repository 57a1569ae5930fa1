"""Run by Alembic for every migration, on the connection that `gpuqueue.store.schema` hands over."""

from alembic import context

context.configure(connection=context.config.attributes["connection"], transactional_ddl=True)
with context.begin_transaction():
    context.run_migrations()
