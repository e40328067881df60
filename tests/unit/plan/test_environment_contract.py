"""Users write code against these names and values: adding, losing or changing one is a change they must hear of."""

import json

import pytest
from planning import FACTS, environments, plan

from drumline.contract.errors import PlanError

EVERY_RANK = {
    "AZUREML_RUN_ID",
    "AZUREML_ROOT_RUN_ID",
    "AZUREML_EXPERIMENT_ID",
    "AZUREML_ARM_PROJECT_NAME",
    "AZUREML_ARM_RESOURCEGROUP",
    "AZUREML_ARM_SUBSCRIPTION",
    "AZUREML_ARM_WORKSPACE_NAME",
    "AZUREML_CR_EXECUTION_WORKING_DIR_PATH",
    "AZUREML_WORKSPACE_ID",
    "AZUREML_WORKSPACE_SCOPE",
    "AZUREML_NODE_COUNT",
    "AZUREML_CR_NODE_RANK",
    "AZUREML_PROCESS_NAME",
    "AZUREML_CR_DISTRIBUTED_CONFIG",
    "MLFLOW_TRACKING_URI",
    "MLFLOW_RUN_ID",
    "MLFLOW_RUN_CONTEXT",
    "MLFLOW_EXPERIMENT_NAME",
    "MLFLOW_ALLOW_FILE_STORE",
    "PYTHONUNBUFFERED",
    "OMP_NUM_THREADS",
    "NCCL_SOCKET_IFNAME",
    "GLOO_SOCKET_IFNAME",
    "DRUMLINE_RUN_FOLDER",
    "PATH",
}
SEVERAL_NODES = {
    "AZ_BATCH_MASTER_NODE",
    "AZ_BATCHAI_MPI_MASTER_NODE",
    "AZ_BATCH_HOST_LIST",
    "AZ_BATCH_NODE_LIST",
}
PYTORCH = {
    "MASTER_ADDR",
    "MASTER_PORT",
    "WORLD_SIZE",
    "RANK",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "NODE_RANK",
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
    "ROLE_RANK",
    "ROLE_WORLD_SIZE",
    "ROLE_NAME",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT",
    "TORCHELASTIC_MAX_RESTARTS",
    "JAX_COORDINATOR_ADDRESS",
    "JAX_NUM_PROCESSES",
    "JAX_PROCESS_ID",
    "AZ_BATCHAI_TASK_INDEX",
}
TORCHRUN = {
    "PET_NNODES",
    "PET_NODE_RANK",
    "PET_MASTER_ADDR",
    "PET_MASTER_PORT",
    "PET_NPROC_PER_NODE",
}
TWO_BY_TWO = {"type": "pytorch", "process_count_per_instance": 2}


def test_every_rank_of_pytorch_on_several_nodes_sees_exactly_this():
    for variables in environments(plan(distribution=TWO_BY_TWO)).values():
        assert set(variables) == EVERY_RANK | SEVERAL_NODES | PYTORCH


def test_a_single_node_has_no_batch_variables():
    """Lightning and DeepSpeed tell by AZ_BATCH_MASTER_NODE that there are several nodes."""
    variables = environments(plan(nodes=1, distribution=TWO_BY_TWO))[0]
    assert set(variables) == EVERY_RANK | PYTORCH


@pytest.mark.parametrize(
    "distribution", [{"type": "pytorch", "process_count_per_instance": 1}, {"type": "pytorch"}]
)
def test_one_process_a_node_of_pytorch_may_be_a_torchrun(distribution):
    for variables in environments(plan(distribution=distribution)).values():
        assert set(variables) == EVERY_RANK | SEVERAL_NODES | PYTORCH | TORCHRUN


def test_every_task_of_tensorflow_sees_exactly_this():
    for variables in environments(plan(distribution={"type": "tensorflow", "worker_count": 2})).values():
        assert set(variables) == EVERY_RANK | SEVERAL_NODES | {"TF_CONFIG"}


def test_every_process_of_ray_sees_exactly_this():
    seen = environments(plan(distribution={"type": "ray"}), {**FACTS, "ray_port": "6379"})
    for variables in seen.values():
        assert set(variables) == EVERY_RANK | SEVERAL_NODES | {"RAY_ADDRESS"}
    assert {one["RAY_ADDRESS"] for one in seen.values()} == {"10.0.0.4:6379"}


def test_a_job_without_distribution_on_one_node_sees_no_rank_at_all():
    assert set(environments(plan(nodes=1))[0]) == EVERY_RANK


def test_a_job_without_distribution_on_several_nodes_sees_its_node():
    made = plan(nodes=2)
    coordinates = {"MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "GROUP_RANK"}
    expected = EVERY_RANK | SEVERAL_NODES | coordinates | TORCHRUN
    assert set(environments(made)[1]) == expected


def test_the_coordinates_of_each_of_two_by_two_ranks():
    seen = environments(plan(distribution=TWO_BY_TWO))
    names = ("RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
    assert [tuple(seen[rank][name] for name in names) for rank in range(4)] == [
        ("0", "0", "0", "0", "4", "2"),
        ("1", "1", "0", "0", "4", "2"),
        ("2", "0", "1", "1", "4", "2"),
        ("3", "1", "1", "1", "4", "2"),
    ]
    assert {(one["MASTER_ADDR"], one["MASTER_PORT"]) for one in seen.values()} == {("10.0.0.4", "6105")}


def test_the_names_of_torchrun_say_the_same():
    seen = environments(plan(distribution=TWO_BY_TWO))
    same = {"ROLE_RANK": "RANK", "ROLE_WORLD_SIZE": "WORLD_SIZE", "GROUP_RANK": "NODE_RANK"}
    for one in seen.values():
        assert {name: one[name] for name in same} == {name: one[other] for name, other in same.items()}
        assert one["TORCHELASTIC_RUN_ID"] == "calm_drum"
        assert (one["TORCHELASTIC_RESTART_COUNT"], one["TORCHELASTIC_MAX_RESTARTS"]) == ("0", "0")
        assert (one["GROUP_WORLD_SIZE"], one["ROLE_NAME"]) == ("2", "default")


def test_nobody_is_promised_a_store_that_torchrun_would_hold():
    """With TORCHELASTIC_USE_AGENT_STORE rank 0 would connect to MASTER_PORT and not listen there."""
    assert "TORCHELASTIC_USE_AGENT_STORE" not in environments(plan(distribution=TWO_BY_TWO))[0]


def test_the_names_of_jax_are_those_of_the_same_ranks():
    seen = environments(plan(distribution=TWO_BY_TWO))
    names = ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID")
    assert [tuple(seen[rank][name] for name in names) for rank in range(4)] == [
        ("10.0.0.4:6106", "4", str(rank)) for rank in range(4)
    ]


@pytest.mark.parametrize("distribution", [None, {"type": "pytorch"}])
@pytest.mark.parametrize(("gpus", "per_node"), [(0, "1"), (1, "1"), (8, "8")])
def test_a_torchrun_starts_a_rank_for_each_gpu_of_its_node(distribution, gpus, per_node):
    made = plan(distribution=distribution, gpus=gpus)
    seen = environments(made, {**FACTS, "gpus_0": "", "gpus_1": ""})
    names = ("PET_NNODES", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT", "PET_NPROC_PER_NODE")
    assert [tuple(seen[rank][name] for name in names) for rank in (0, 1)] == [
        ("2", "0", "10.0.0.4", "6105", per_node),
        ("2", "1", "10.0.0.4", "6105", per_node),
    ]
    assert [node.gpu_count for node in made.nodes] == [gpus, gpus]


def test_a_users_word_to_torchrun_wins():
    made = plan(environment_variables={"PET_NPROC_PER_NODE": 2, "PET_MAX_RESTARTS": 3})
    variables = environments(made)[1]
    assert (variables["PET_NPROC_PER_NODE"], variables["PET_MAX_RESTARTS"]) == ("2", "3")


def test_a_launcher_in_the_command_of_each_node_is_not_told_that_there_is_another():
    """Lightning starts no ranks of its own where it sees one of these."""
    assert not {"LOCAL_RANK", "RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID"} & set(environments(plan())[0])


def test_the_names_of_azure_and_batch():
    variables = environments(plan(distribution=TWO_BY_TWO))[3]
    expected = {
        "AZUREML_RUN_ID": "calm_drum",
        "AZUREML_ROOT_RUN_ID": "calm_drum",
        "AZUREML_ARM_PROJECT_NAME": "digits",
        "AZUREML_NODE_COUNT": "2",
        "AZUREML_CR_NODE_RANK": "1",
        "AZUREML_PROCESS_NAME": "rank_3",
        "AZ_BATCH_MASTER_NODE": "10.0.0.4:6105",
        "AZ_BATCHAI_MPI_MASTER_NODE": "10.0.0.4",
        "AZ_BATCH_HOST_LIST": "10.0.0.4,10.0.0.5",
        "AZ_BATCH_NODE_LIST": "10.0.0.4;10.0.0.5",
        "NCCL_SOCKET_IFNAME": "eth0",
        "GLOO_SOCKET_IFNAME": "eth0",
        "MLFLOW_RUN_ID": "calm_drum",
        "MLFLOW_EXPERIMENT_NAME": "digits",
        "MLFLOW_TRACKING_URI": "file:///home/ann/mlruns",
        "PYTHONUNBUFFERED": "1",
    }
    assert {name: variables[name] for name in expected} == expected
    config = json.loads(variables["AZUREML_CR_DISTRIBUTED_CONFIG"])
    assert config == {"rank": 3, "host_list": ["10.0.0.4", "10.0.0.5"]}


def test_tf_config_of_workers_alone_has_no_parameter_servers():
    seen = environments(plan(distribution={"type": "tensorflow", "worker_count": 2}))
    assert [json.loads(seen[rank]["TF_CONFIG"]) for rank in (0, 1)] == [
        {
            "cluster": {"worker": ["10.0.0.4:2001", "10.0.0.5:2002"]},
            "task": {"type": "worker", "index": index},
            "environment": "cloud",
        }
        for index in (0, 1)
    ]


def test_parameter_servers_share_the_nodes_of_the_workers():
    made = plan(distribution={"type": "tensorflow", "worker_count": 2, "parameter_server_count": 1})
    assert [[task.label for task in node.ranks] for node in made.nodes] == [["0", "ps0"], ["1"]]
    config = json.loads(environments(made)[2]["TF_CONFIG"])
    assert config["cluster"]["ps"] == ["10.0.0.4:2003"]
    assert config["task"] == {"type": "ps", "index": 0}
    assert [task.awaited for task in made.ranks] == [True, True, False]
    assert [task.log for task in made.ranks] == [
        "user_logs/std_log_node_00_worker.txt",
        "user_logs/std_log_node_01_worker.txt",
        "user_logs/std_log_node_00_ps.txt",
    ]


def test_without_a_worker_count_there_is_a_worker_on_each_node():
    assert len(plan(nodes=3, distribution={"type": "tensorflow"}).ranks) == 3


def test_fewer_workers_than_nodes_are_refused():
    with pytest.raises(PlanError, match="leaves 1 of 2 nodes without a worker"):
        plan(distribution={"type": "tensorflow", "worker_count": 1})


@pytest.mark.parametrize(
    ("nodes", "per_node", "logs"),
    [
        (1, 1, ["user_logs/std_log.txt"]),
        (2, 1, ["user_logs/std_log_process_00.txt", "user_logs/std_log_process_01.txt"]),
    ],
)
def test_logs_are_named_as_azure_names_them(nodes, per_node, logs):
    made = plan(nodes=nodes, distribution={"type": "pytorch", "process_count_per_instance": per_node})
    assert [task.log for task in made.ranks] == logs


@pytest.mark.parametrize(
    ("cores", "per_node", "threads"), [(4, 2, "2"), (4, 3, "1"), (2, 8, "1"), (5, 1, "5")]
)
def test_the_ranks_of_a_node_share_its_cores(cores, per_node, threads):
    made = plan(cores=cores, distribution={"type": "pytorch", "process_count_per_instance": per_node})
    assert {one["OMP_NUM_THREADS"] for one in environments(made).values()} == {threads}
    assert [len(node.cores) for node in made.nodes] == [cores, cores]


def test_gpus_are_named_only_where_there_are_some():
    assert "CUDA_VISIBLE_DEVICES" not in environments(plan(distribution=TWO_BY_TWO))[0]
    seen = environments(plan(distribution=TWO_BY_TWO, gpus=2))
    assert [seen[rank]["CUDA_VISIBLE_DEVICES"] for rank in range(4)] == ["0,1", "0,1", "2,3", "2,3"]


def test_ranks_need_no_more_gpus_than_there_are_ranks():
    assert [node.gpu_count for node in plan(distribution=TWO_BY_TWO, gpus=8).nodes] == [2, 2]
    assert plan(nodes=1, distribution={"type": "pytorch"}, gpus=8).nodes[0].gpu_count == 1


def test_the_users_variables_win_over_all_but_the_coordinates():
    made = plan(
        distribution=TWO_BY_TWO,
        gpus=2,
        environment_variables={
            "OMP_NUM_THREADS": 7,
            "CUDA_VISIBLE_DEVICES": "5",
            "NCCL_SOCKET_IFNAME": "ib0",
            "AZUREML_PROCESS_NAME": "mine",
            "RANK": "9",
            "DEBUG": True,
        },
    )
    variables = environments(made)[1]
    expected = {
        "OMP_NUM_THREADS": "7",
        "CUDA_VISIBLE_DEVICES": "5",
        "NCCL_SOCKET_IFNAME": "ib0",
        "AZUREML_PROCESS_NAME": "mine",
        "RANK": "1",
        "DEBUG": "True",
    }
    assert {name: variables[name] for name in expected} == expected
    assert "environment_variables.RANK: not used; it is the rank's own coordinate" in made.warnings


def test_nothing_in_a_users_value_is_late_bound():
    """A value is the user's; ``${node_0}`` in it is text."""
    made = plan(distribution=TWO_BY_TWO, environment_variables={"A": "${node_0} ${foo_port} ${HOME}"})
    assert environments(made)[0]["A"] == "${node_0} ${foo_port} ${HOME}"


def test_the_interpreter_comes_first_on_the_path():
    assert environments(plan(nodes=1))[0]["PATH"] == "/opt/venv/bin:/usr/bin:/bin"


def test_inputs_and_outputs_are_variables_too():
    made = plan(nodes=1, inputs={"epochs": 3}, outputs={"model": {"type": "uri_folder"}})
    variables = environments(made)[0]
    assert variables["AZURE_ML_INPUT_epochs"] == "3"
    assert variables["AZURE_ML_OUTPUT_model"] == "/home/ann/jobs/calm_drum/named-outputs/model"
