"""
The options of sbatch that may be given, by their long names: in a job, and in the settings of a compute.

Source: sbatch(1) of 22.05 to 25.05.
"""

from __future__ import annotations

OURS = {
    "nodes": "resources.instance_count says how many",
    "ntasks": "the distribution says how many",
    "ntasks-per-node": "an agent a node starts the ranks",
    "job-name": "it is the job's name",
    "output": "it goes to the run folder",
    "error": "it goes to the run folder",
    "open-mode": "a second start must not erase what the first wrote",
    "chdir": "it is the run folder",
    "signal": "Drumline is told before the time limit in its own way",
    "export": "environment_variables says what the ranks get",
    "array": "one job is one job",
    "wrap": "the batch script is Drumline's",
    "parsable": "the answer is Drumline's to read",
    "test-only": "drumline plan shows what would be submitted",
    "wait": "drumline job stream waits",
    "input": "ranks have no standard input",
    "export-file": "environment_variables says what the ranks get",
    "clusters": "one compute is one cluster",
    "ntasks-per-core": "an agent a node starts the ranks",
    "ntasks-per-gpu": "an agent a node starts the ranks",
    "ntasks-per-socket": "an agent a node starts the ranks",
    "distribution": "an agent a node starts the ranks",
    "no-kill": "a lost node ends the attempt",
    "wait-all-nodes": "the ranks start when all nodes are there",
    "ignore-pbs": "the batch script is Drumline's",
    "quiet": "the answer is Drumline's to read",
    "verbose": "the answer is Drumline's to read",
    "help": "it submits nothing",
    "usage": "it submits nothing",
    "version": "it submits nothing",
}
"""Options of sbatch that are not the user's to give, and why."""

USERS = frozenset(
    """
    account acctg-freq batch bb bbf begin burst-buffer cluster-constraint comment constraint container
    contiguous core-spec cores-per-socket cpu-freq cpus-per-gpu cpus-per-task deadline delay-boot dependency
    exclude exclusive extra extra-node-info get-user-env gid gpu-bind gpu-freq gpus gpus-per-node
    gpus-per-socket gpus-per-task gres gres-flags hint hold kill-on-invalid-dep licenses mail-type mail-user
    mcs-label mem mem-bind mem-per-cpu mem-per-gpu mincpus network nice nodefile nodelist overcommit
    oversubscribe partition power prefer priority profile propagate qos reboot requeue reservation segment
    sockets-per-node spread-job stepmgr switches thread-spec threads-per-core time time-min tmp tres-bind
    tres-per-task uid use-min-nodes wckey
    """.split()  # noqa: SIM905 - a list of words
)
"""Options of sbatch that a user may give, by their long names."""
