"""Instance groups with the properties of their types."""

from bakehouse.catalog.instance_types import Instance
from bakehouse.jobs.instance_groups import InstanceGroup, instance_group


def test_a_group_with_what_is_known_of_its_type() -> None:
    types = {"ml.p4d.24xlarge": Instance("ml.p4d.24xlarge", 96, 8, rdma_read=True)}

    assert instance_group(types, "ml.p4d.24xlarge", 2, "dnn") == InstanceGroup(
        "ml.p4d.24xlarge", 2, "dnn", gpus=8, rdma_read=True, is_listed=True
    )
    assert instance_group(types, "ml.q1.xlarge") == InstanceGroup("ml.q1.xlarge", is_known=False)
    assert instance_group({}, "ml.q1.xlarge") == InstanceGroup("ml.q1.xlarge")
