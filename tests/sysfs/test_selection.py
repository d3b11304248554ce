"""What a survey's options refuse, in any driver."""

import pytest

from dpgateway import from_plain
from dpgateway.sysfs import GroupOption, Parts


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        (
            GroupOption,
            {"by": "{atr:iommu_group}"},
            r"by: found \{atr:iommu_group\}; did you mean attr\?, expected one of",
        ),
        (GroupOption, {"by": "{kernel}}"}, "by: .*expected an opening brace"),
        (Parts, {"entries": "/proc/{kernel"}, "entries: .*expected a closing brace"),
        (Parts, {"count": "{attr}"}, "count: .*expected the path of an attribute"),
    ],
)
def test_a_wrong_template_is_an_error_of_its_option(kind, value, message):
    with pytest.raises(ValueError, match=message):
        from_plain(value, kind)


def test_templates_may_have_a_part_of_the_object():
    assert from_plain({"by": "{kernel}-{part}"}, GroupOption).by == "{kernel}-{part}"
    assert from_plain({"count": "{attr:ports}"}, Parts).count == "{attr:ports}"
