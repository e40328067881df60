"""
Pipelines and sweeps: jobs that consist of other jobs.

Each has its own run folder and a driver, a process that submits its steps (or trials) as ordinary jobs and watches
them. ``submission.driven`` prepares the job, makes its folder and starts the driver; ``process`` is the driver's life,
``children`` are the jobs that it looks after, ``pipeline`` and ``sweep`` decide what comes next.

A driver knows nothing that the events of its folder do not say: another one goes on where it was. A guard starts it
again when it is killed; when both are killed, ``jobs.recovery.recover`` does.
"""
