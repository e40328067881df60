"""
Pipelines and sweeps: jobs that consist of other jobs.

Each has a run folder of its own and a driver, a process that submits its steps (or trials) as ordinary jobs, and looks
at what becomes of them. ``prepare`` and ``sweep_prepare`` find out what there is to do, ``start`` makes the folder and
starts the driver; ``process`` is its life, ``children`` are the jobs that it looks after, ``pipeline`` and ``sweep``
decide what comes next.

A driver knows nothing that the events of its folder do not say: another one goes on where it was. A guard starts it
again when it is killed; when both are, whoever looks at the job next does (``start.revive``).
"""
