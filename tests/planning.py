"""Plans of jobs made in Python, on nodes of a made-up shape."""

from drumline.contract.folder import RunFolder
from drumline.contract.plan import NodeShape
from drumline.contract.rank_variables import RankVariables
from drumline.plan.planner import Site, plan_job
from drumline.spec.jobs.command import command


def site(nodes=2, cores=4, gpus=0, **settings):
    shapes = tuple(NodeShape(tuple(range(node * cores, (node + 1) * cores)), gpus) for node in range(nodes))
    given = {
        "engine": "local",
        "shapes": shapes,
        "folder": RunFolder("/home/ann/jobs/calm_drum"),
        "interpreter": "/opt/venv/bin/python",
        "search_path": "/usr/bin:/bin",
        "mlflow_uri": "file:///home/ann/mlruns",
        **settings,
    }
    return Site(**given)


def plan(nodes=2, distribution=None, cores=4, gpus=0, at=None, **job):
    """``at``: what is known of the site."""
    job.setdefault("command", "python train.py")
    job.setdefault("experiment_name", "digits")
    made = command(instance_count=nodes, distribution=distribution, **job)
    return plan_job(made, site(nodes, cores, gpus, **(at or {})))


FACTS = {
    "node_0": "10.0.0.4",
    "node_1": "10.0.0.5",
    "interface": "eth0",
    "gpus_0": "0,1",
    "gpus_1": "2,3",
    "master_port": "6105",
    "jax_port": "6106",
    "worker_0_port": "2001",
    "worker_1_port": "2002",
    "ps_0_port": "2003",
}


def environments(made, facts=FACTS):
    """Rank to the variables that it starts with."""
    variables = RankVariables(made, facts)
    return {task.rank: variables.of_rank(node, task) for node in made.nodes for task in node.ranks}
