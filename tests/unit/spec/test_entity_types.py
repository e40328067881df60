"""The table from types to classes and tables: every place that it names is there, and of that type."""

import pytest

from drumline.spec.entity_types import JOB_TYPES, component_class, component_table, job_class, job_table
from drumline.spec.kinds.values import OneOf

COMPONENT_TYPES = ("command", "parallel", "pipeline")


def allowed_types(table):
    choice = table.fields["type"]
    assert isinstance(choice, OneOf)
    return choice.values


@pytest.mark.parametrize("kind", JOB_TYPES)
def test_a_job_has_the_class_and_the_table_of_its_type(kind):
    assert job_class(kind).type == kind
    assert allowed_types(job_table(kind)) == (kind,)


@pytest.mark.parametrize("kind", COMPONENT_TYPES)
@pytest.mark.parametrize("named", [True, False])
def test_a_component_has_the_class_and_the_table_of_its_type(kind, named):
    table = component_table(kind, named=named)
    assert component_class(kind).type == kind
    assert allowed_types(table) == (kind,)
    assert ("name" in table.required) == named
