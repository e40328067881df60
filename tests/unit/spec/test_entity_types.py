"""The table from types to classes and tables: every place that it names is there, and of that type."""

import pytest

from drumline.spec.entity_types import JOB_TYPES, component_class, component_table, job_class, job_table


@pytest.mark.parametrize("kind", JOB_TYPES)
def test_a_job_has_the_class_and_the_table_of_its_type(kind):
    assert job_class(kind).type == kind
    assert vars(job_table(kind).fields["type"])["values"] == (kind,)


@pytest.mark.parametrize("kind", ["command", "parallel", "pipeline"])
@pytest.mark.parametrize("named", [True, False])
def test_a_component_has_the_class_and_the_table_of_its_type(kind, named):
    table = component_table(kind, named=named)
    assert component_class(kind).type == kind
    assert vars(table.fields["type"])["values"] == (kind,)
    assert ("name" in table.required) == named
