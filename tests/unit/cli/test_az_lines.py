"""
Lines as Azure's own examples and manuals have them, with ``drumline`` in the place of ``az ml``: each parses. Nothing
runs. They are the distinct combinations of verbs and flags, with short names.
"""

import importlib
import shlex

import pytest
from surface import nouns

from drumline.cli.arguments import Parser, parse_verb
from drumline.cli.main import find_module
from drumline.contract.errors import UsageError

LINES = """
job create -f job.yml
job create --file job.yml --web
job create -f job.yml --web --stream
job create -f job.yml --query name -o tsv
job create --file job.yml --query name --output tsv --resource-group g --workspace-name w
job create -f job.yml --set inputs.data.path=data/unlabeled
job create -f job.yml --set compute=azureml:c environment_variables.A=b --set display_name="a b" --web
job create -f job.yml --set jobs.train.component=azureml:train:1 inputs.a=1 --query name -o tsv
job create --file job.yml --name j --set tags.a="b c" --save-as out.yml --skip-validation
job create -f job.yml -g g -w w --subscription s
job create --file job.yml --workspace w --out json
job show -n j
job show -n j --web
job show --name j --query status -o tsv
job show -n j --query services.Studio.endpoint
job show -n j --query "{name:name, status:status}" -o table
job stream -n j
job stream --name j --workspace-name w --resource-group g
job stream -n j --out none
job list
job list -r 1
job list --parent-job-name j --query [].name -o tsv
job list --parent-job-name j --workspace-name w --resource-group g --query [0].name
job list --query "[?contains(display_name,'x')]" --out table
job list --all-results true
job list --archived-only
job list --include-archived --max-results 5
job cancel -n j
job cancel -n j -w w -g g -o none
job cancel -n j --query status
job download -n j
job download -n j --all
job download --name j --output-name score --download-path .
job download --all -n j -p out -o json
job archive --name j --out none
job restore --name j --query name
job update -n j --set display_name="a b" experiment_name="c d" description="e f" tags.a="g h"
job update --name j --set tags.a=b --set properties.c=d --web
job update -n j --remove tags.a
job update -n j --add tags.a=b --force-string
job validate -f pipeline.yml
job validate --file pipeline.yml --resource-group g --workspace-name w --set inputs.a=1
job show-services --name j --node-index 1
job show-services -n j -i 0 -g g -w w
compute create -n c --type amlcompute --min-instances 0 --max-instances 10
compute create -n c --type AmlCompute --min-instances 0 --max-instances 4 --size Standard_NC12 --debug
compute create --name c --size STANDARD_DS11_V2 --type ComputeInstance
compute create -n c --type amlcompute --size X --tier low_priority --idle-time-before-scale-down 1800
compute create --name c --type amlcompute --identity-type user_assigned --user-assigned-identities /id
compute create --name c --type amlcompute --identity-type SystemAssigned
compute create --name c --type amlcompute --vnet-name v --subnet s --enable-node-public-ip false
compute create --name c --type amlcompute --admin-username a --admin-password b --ssh-public-access-enabled true
compute create -f compute.yml
compute create --name c -f compute.yml -g g -w w --no-wait
compute create --file compute.yml --resource-group g --workspace-name w --location eastus --tags a=b c=d
compute create -n c --type computeinstance --size X --ssh-key-value k --user-object-id o --user-tenant-id t
compute attach --file compute.yml --subscription s --resource-group g --workspace-name w
compute attach --name c --type Kubernetes --resource-id /id --identity-type SystemAssigned --namespace n --no-wait
compute attach -g g -w w -n c --type virtualmachine --resource-id /id --ssh-port 22 --admin-username a
compute attach -n c --type virtualmachine --resource-id /id --ssh-private-key-file key --admin-password p
compute show -n c --query name
compute show -n c -w w -g g --query provisioning_state --out tsv
compute show --name c --query identity.principal_id -o tsv
compute show --name c --query '{"id": id, "identity_object_id": identity.principal_id}' -o json
compute list
compute list --type AmlCompute -o table
compute list -w w -g g --query "[?type=='AmlCompute'].name" -o tsv
compute list --max-results 5
compute list-nodes -n c -o table
compute update -n c --max-instances 4
compute update -n c -w w -g g --min-instances 1 --max-instances 4
compute update --name c --identity-type system_assigned
compute update --name c --identity-type user_assigned --user-assigned-identities /id
compute update --name c --set max_instances=4 --no-wait
compute update --name c --idle-time-before-scale-down 300 --tags a=b
compute delete -n c
compute delete --name c --yes --no-wait --resource-group g --workspace-name w -o none
compute detach --name c -g g -w w -y --query name
data create -f data.yml
data create --file data.yml --version 2 --set version=3
data create --name d --version 1 --path data --type uri_folder --description "a b"
data create -n d -t uri_file -p https://host/a.csv -g g -w w --query path --output tsv
data create --name d --path data --type mltable --datastore workspaceblobstore --skip-validation --no-wait
data list
data list --name d --out table
data list --query "[?name=='d'] | [0].latest_version" -o tsv
data list --include-archived --max-results 5
data show -n d --label latest
data show --name d --version 1 --query tags -o tsv
data update --name d --version 1 --set description="a b" --set tags.a=b
data update --name d --version 1 --set tags.a=b --force-string
data archive --name d
data archive --name d --version 1 -o json
data archive --name d --label latest --query name
data restore --name d --version 1 --out none
environment create -f env.yml
environment create --file env.yml --name e --version 2 -w w -g g
environment create --name e --image host/image:latest
environment create --name e --image host/image --conda-file conda.yml --version 1
environment create --name e --build-context context --dockerfile-path Dockerfile --os-type linux
environment create --file env.yml --set version=1 --tags a=b --description "a b"
environment list
environment list --name e -o table
environment list -n e -g g -w w --query "reverse(sort_by([], &version))[0].version" -o tsv
environment list --archived-only
environment show --name e --version 1
environment show --name e --label latest --query image
environment update --name e --version 1 --set description="a b"
environment archive --name e --out json
environment archive --name e --version 1
environment restore --name e --version 1 --query name
component create -f component.yml
component create --file flow.yaml --set name=x --version 1
component create --file component.yml --resource-group g --workspace-name w
component create --file component.yml --set version=1 environment=azureml:e:1 --query id -o tsv
component list
component list --name c --out table
component show --name c --version 1
component show -n c -l latest --query id
component update -n c -v 1 --set display_name=x
component archive -n c
component archive -n c -v 1 -o none
component restore -n c --query name
component restore -n c -v 1
model create -f model.yml
model create --name m --path model
model create --name m --version 1 --path model/model.pkl --type custom_model --stage Production
model create --name m --version 1 --path runs:/j/model/ --type mlflow_model
model create --name m --version 1 --path azureml://jobs/j/outputs/artifacts/paths/model --type mlflow_model -w w
model create -n m -v 2 -t triton_model -p model --description "a b" --tags a=b --set tags.c=d
model list
model list --name m -o table
model list --name m --query "max([].to_number(version))" -o tsv
model list --stage Production
model show -n m -v 1
model show --name m --label latest --query path --out tsv
model update --name m --version 1 --set description="a b" --set tags.stage="Prod"
model update --name m --version 1 --stage Production
model download --name m --version 1 --download-path out -g g -w w
model download -n m -v 1 -p out --out json --query name
model archive --name m --version 1 --out none
model restore --name m --query name
datastore create --file store.yml
datastore create --file store.yml --workspace-name w --resource-group g --set account_name=a
datastore list --out table
datastore list --query "[?is_default].name" -o tsv
datastore show -n workspaceblobstore --query container_name -o tsv
datastore show --name workspaceblobstore -o json
datastore update --name d --set description="a b"
datastore delete --name d
datastore delete -n d --yes -o none
workspace show
workspace show --query id
workspace show --query location -o tsv
workspace show -w w -g g --query container_registry -o tsv
workspace show --workspace w --out json
workspace show --name w --resource-group g --subscription s --query '{name:name,location:location}' --output table
workspace list -g g --query "[0].name" -o tsv
workspace list --filtered-kinds hub
workspace create -n w -g g
workspace create --name w --location eastus --tags a=b c=d --output none
workspace create -w w -g g --file workspace.yml
workspace create --kind project --hub-id /id -g g -n w
workspace create -n w --storage-account /a --key-vault /k --container-registry /c --application-insights /i
workspace create --name w --public-network-access Disabled --managed-network allow_internet_outbound
workspace create --name w --image-build-compute c --update-dependent-resources --no-wait
workspace update -n w --set public_network_access=Enabled -g g
workspace update -n w -g g -c /id -u
workspace update --subscription s --resource-group g --name w --file identity.yml
workspace update --name w --public-network-access Disabled --network-acls 1.2.3.4/32
workspace update -w w -g g
workspace update --name w --description "a b" --display-name x --primary-user-assigned-identity /id
workspace update --allow-roleassignment-on-rg true
workspace delete -n w --all-resources
workspace delete --name w --resource-group g --yes --permanently-delete --no-wait
workspace delete -w w -g g -y -o none --query name
"""

REFUSED = """
environment create --file env.yml --registry-name r --version 1
component create --file train.yml --registry-name r --set version=1
model create --name m --version 1 --path model --registry-name r
data create -f data.yml --registry-name r
model share --name m --version 1 --share-with-name m --share-with-version 1 --registry-name r
"""


def _parse(line):
    noun, *words = shlex.split(line)
    # The command takes --debug before it looks for a verb.
    words = [word for word in words if word != "--debug"]
    return parse_verb(noun, "", importlib.import_module(find_module(noun)).VERBS, words)


@pytest.mark.parametrize("line", LINES.strip().splitlines())
def test_a_line_parses(line):
    assert _parse(line).verb == line.split()[1]


@pytest.mark.parametrize("line", REFUSED.strip().splitlines())
def test_registries_alone_are_refused(line):
    with pytest.raises(UsageError, match="registries"):
        _parse(line)


def _verbs():
    """Those that are not there for their message alone, with what they cannot do without."""
    for noun in nouns():
        for verb, (_, arguments, _) in importlib.import_module(find_module(noun)).VERBS.items():
            parser = Parser(prog=verb)
            try:
                arguments(parser)
            except UsageError:
                continue
            required = [action for action in parser._actions if action.required]
            yield " ".join((noun, verb, *("-f file" if one.option_strings else one.dest for one in required)))


@pytest.mark.parametrize("words", list(_verbs()))
def test_every_verb_takes_a_format_a_query_and_a_workspace(words):
    given = _parse(f"{words} --out json --query name --workspace w -g g --subscription s")
    assert (given.output, given.query, given.workspace_name) == ("json", "name", "w")


@pytest.mark.parametrize("line", ["job list -o xml", "job cancel -n j -o", "job list --outp json"])
def test_what_az_would_not_take_either_is_refused(line):
    with pytest.raises(UsageError):
        _parse(line)
