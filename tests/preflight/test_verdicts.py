"""Facts in, findings out."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpgateway.node.holders import Container, Noted
from dpgateway.node.versions import ALL, ANY, Layout, Span, kubelet_version
from dpgateway.preflight import Facts, Finding, Held, OfferedResource, RuntimeFacts, judge, verdict

R = "example.com/thing"
POD = Noted(containers=frozenset({Container("uid", "c")}))
HELD = Held({R: {"a": POD}}, frozenset({Layout.BY_NODE}))
SERVED = OfferedResource(R, "fake", offered={"a": "", "b": ""})
APIS = "v1beta1", "v1alpha2", "v1alpha1"


def facts(present, to, **others):
    """A node where nothing is wrong, of which all is known."""
    span = Span(kubelet_version(present), kubelet_version(present))
    runtime = RuntimeFacts("containerd", "2.1.0", cdi=True)
    usual = Facts(span, kubelet_version(to), HELD, (SERVED,), apis=APIS, runtime=runtime, cgroups=2)
    return replace(usual, **others)


def found(facts):
    return [(one.level, one.code) for one in judge(facts)]


def the(code, facts):
    (one,) = [one for one in judge(facts) if one.code == code]
    return one


def test_nothing_is_lost():
    assert found(facts("1.31", "1.37")) == []
    assert verdict(()) == "safe"


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        (["change"], "safe"),
        (["change", "unknown"], "unknown"),
        (["unknown", "loss", "change"], "loss"),
    ],
)
def test_the_worst_finding_decides(levels, expected):
    findings = [Finding(level, "code", "text") for level in levels]
    assert verdict(findings) == expected


class TestTheCheckpoint:
    @pytest.mark.parametrize(
        ("layout", "to", "codes"),
        [
            (Layout.PER_DEVICE, "1.8", []),
            (Layout.PER_DEVICE, "1.9", ["checkpoint-forgotten"]),
            (Layout.PER_CONTAINER, "1.8", ["checkpoint-forgotten"]),
            (Layout.PER_CONTAINER, "1.10", []),
            (Layout.PER_CONTAINER, "1.11", ["checkpoint-forgotten"]),
            (Layout.CHECKED, "1.19", []),
            (Layout.CHECKED, "1.20", ["checkpoint-by-patch"]),
            (Layout.CHECKED, "1.22", ["checkpoint-by-patch"]),
            (Layout.CHECKED, "1.23", []),
            (Layout.CHECKED, "1.30", []),
            (Layout.CHECKED, "1.31", ["checkpoint-forgotten"]),
            (Layout.CHECKED, "1.37", ["checkpoint-forgotten"]),
            (Layout.BY_NODE, "1.20", []),
            (Layout.BY_NODE, "1.37", []),
            (Layout.BY_NODE, "1.19", ["checkpoint-forgotten"]),
        ],
    )
    def test_which_kubelets_forget_which(self, layout, to, codes):
        held = replace(HELD, layouts=frozenset({layout}))
        assert [code for _, code in found(facts(to, to, held=held)) if code.startswith("checkpoint")] == codes

    def test_forgotten_checkpoint_and_bridges(self):
        held = replace(HELD, layouts=frozenset({Layout.CHECKED}))
        one = the("checkpoint-forgotten", facts("1.12", "1.37", held=held))
        assert (one.level, one.ids, one.pods) == ("loss", ("a",), ("uid",))
        assert "kubelet 1.37 can't read this checkpoint (as 1.11 to 1.19 write it)" in one.text
        assert one.advice == "drain the node first, or go through a kubelet 1.23 to 1.30, which reads this format"

    def test_no_way_around(self):
        held = replace(HELD, layouts=frozenset({Layout.PER_CONTAINER}))
        assert the("checkpoint-forgotten", facts("1.10", "1.37", held=held)).advice == "drain the node first"

    @pytest.mark.parametrize("notes", [{}, {R: {}}])
    def test_nothing_held_nothing_forgotten(self, notes):
        held = Held(notes, frozenset({Layout.CHECKED, Layout.BY_NODE}))
        assert found(facts("1.12", "1.37", held=held)) == []

    def test_one_that_can_not_be_read(self):
        one = the("checkpoint-unread", facts("1.31", "1.37", held=Held(unread="it is torn")))
        assert (one.level, one.text) == ("unknown", "the holders aren't known: it is torn")


class TestIds:
    def test_one_that_would_not_be_listed(self):
        served = replace(SERVED, offered={"b": ""})
        one = the("id-unlisted", facts("1.31", "1.33", served=(served,)))
        assert (one.level, one.resource, one.ids, one.pods) == ("loss", R, ("a",), ("uid",))
        assert "can crash" not in one.text
        assert "can crash" in the("id-unlisted", facts("1.31", "1.34", served=(served,))).text

    def test_text_names_five_ids(self):
        notes = {R: {f"id{number}": POD for number in range(7)}}
        one = the("id-unlisted", facts("1.31", "1.37", held=replace(HELD, notes=notes)))
        assert "containers hold id0, id1, id2, id3, id4 and 2 more, which" in one.text
        assert len(one.ids) == 7

    def test_one_that_would_be_unhealthy(self):
        one = the("id-unhealthy", facts("1.31", "1.37", served=(replace(SERVED, offered={"a": "too hot"}),)))
        assert (one.level, one.text) == ("change", "containers hold a, which would be Unhealthy: too hot")

    @pytest.mark.parametrize(
        ("ours", "expected"),
        [({R}, ("loss", "resource-unserved")), (set(), ("change", "resource-of-others"))],
    )
    def test_a_resource_that_is_not_configured(self, ours, expected):
        one = facts("1.31", "1.37", served=(), ours=frozenset(ours))
        assert found(one) == [expected]
        assert judge(one)[0].ids == ("a",)

    def test_removed_resource_may_crash_kubelets(self):
        of = {"served": (), "ours": frozenset({R})}
        text = "containers hold a, which dpgateway gave them, but the configuration has no {R} for this node any more"
        assert the("resource-unserved", facts("1.31", "1.33", **of)).text == text.format(R=R)
        assert "can crash" in the("resource-unserved", facts("1.31", "1.34", **of)).text

    def test_failing_driver_hides_its_list(self):
        served = replace(SERVED, failure="it hangs", offered={})
        assert found(facts("1.31", "1.37", served=(served,))) == [("unknown", "driver-failed")]


class TestApis:
    @pytest.mark.parametrize(("present", "to"), [("1.8", "1.9"), ("1.9", "1.37"), ("1.37", "1.8")])
    def test_another_one(self, present, to):
        assert ("change", "api-changes") in found(facts(present, to, held=Held()))

    def test_one_that_the_configuration_leaves_out(self):
        assert ("loss", "api-refused") in found(facts("1.9", "1.10", apis=("v1alpha2",)))
        assert ("loss", "api-refused") not in found(facts("1.9", "1.10", apis=("v1beta1",)))

    @pytest.mark.parametrize(("to", "expected"), [("1.8", True), ("1.9", True), ("1.10", False)])
    def test_device_plugins_behind_a_feature_gate(self, to, expected):
        assert (("change", "feature-gate") in found(facts("1.37", to, held=Held()))) == expected


class TestPodsThatAreAdmittedAgain:
    @pytest.mark.parametrize(
        ("present", "to", "expected"),
        [("1.24", "1.25", True), ("1.24", "1.37", True), ("1.25", "1.37", False), ("1.37", "1.24", False)],
    )
    def test_a_kubelet_that_wants_healthy_devices(self, present, to, expected):
        assert (("change", "readmission") in found(facts(present, to))) == expected

    def test_nobody_holds_anything(self):
        assert found(facts("1.24", "1.37", held=Held())) == []


class TestTheNode:
    @pytest.mark.parametrize(
        ("present", "to", "cgroups", "expected"),
        [
            ("1.34", "1.35", 1, [("loss", "cgroup-v1")]),
            ("1.34", "1.35", None, [("unknown", "cgroup-v1")]),
            ("1.34", "1.35", 2, []),
            ("1.33", "1.34", 1, []),
            ("1.35", "1.37", 1, []),  # it runs, so its configuration allows it
        ],
    )
    def test_cgroups(self, present, to, cgroups, expected):
        assert found(facts(present, to, cgroups=cgroups)) == expected

    def test_kubelet_allowed_cgroup_v1(self):
        assert found(facts("1.34", "1.37", cgroups=1, allows_cgroup_v1=True)) == []

    @pytest.mark.parametrize(
        ("present", "to", "expected"),
        [("1.25", "1.26", [("unknown", "runtime-unknown")]), ("1.26", "1.37", []), ("1.23", "1.25", [])],
    )
    def test_runtime_that_cannot_be_asked(self, present, to, expected):
        one = facts(present, to, runtime=None, no_runtime="nobody answers", held=Held())
        assert found(one) == expected
        assert all("nobody answers" in one.text for one in judge(one))

    @pytest.mark.parametrize(
        ("cdi", "named", "present", "to", "expected"),
        [
            (False, False, "1.29", "1.37", [("change", "cdi-expanded")]),
            (False, True, "1.29", "1.37", [("loss", "cdi-dropped")]),
            (False, True, "1.29", "1.30", [("loss", "cdi-dropped")]),
            (None, True, "1.31", "1.32", [("unknown", "cdi-unsure")]),
            (None, True, "1.29", "1.31", []),
            (None, True, "1.32", "1.37", []),
            (None, False, "1.31", "1.32", []),
            (True, True, "1.31", "1.32", []),
            (False, False, "1.24", "1.28", []),
        ],
    )
    def test_a_runtime_and_cdi(self, cdi, named, present, to, expected):
        held = replace(HELD, named=frozenset({R} if named else ()))
        runtime = RuntimeFacts("containerd", "1", cdi)
        seen = [one for one in found(facts(present, to, held=held, runtime=runtime)) if one[1].startswith("cdi")]
        assert seen == expected

    @pytest.mark.parametrize(("to", "expected"), [("1.32", ["cdi-unread"]), ("1.28", [])])
    def test_a_runtime_that_reads_specs_elsewhere(self, to, expected):
        runtime = RuntimeFacts("containerd", "2.4.2", cdi=True, unread_cdi_dirs=("/var/run/cdi",))
        told = [one for one in judge(facts("1.28", to, runtime=runtime)) if one.code.startswith("cdi")]
        assert [one.code for one in told] == expected
        assert all("containerd 2.4.2 reads no CDI specs in /var/run/cdi" in one.text for one in told)


LAYOUTS = st.frozensets(st.sampled_from(Layout))
NAMES = st.sampled_from([R, "example.com/other"])
IDS = st.sampled_from(["a", "b", "", "::1"])
NOTES = st.dictionaries(NAMES, st.dictionaries(IDS, st.sampled_from([POD, Noted()])))
TRUTH = st.booleans()
FACTS = st.builds(
    Facts,
    st.sampled_from([ANY, *(Span(one, one) for one in ALL)]),
    st.sampled_from(ALL),
    st.builds(Held, NOTES, LAYOUTS, st.frozensets(NAMES), st.frozensets(NAMES), st.sampled_from(["", "torn"])),
    st.tuples(
        st.builds(
            OfferedResource,
            NAMES,
            st.just("fake"),
            st.sampled_from([None, "no"]),
            st.dictionaries(IDS, st.sampled_from(["", "ill"])),
            TRUTH,
            TRUTH,
            TRUTH,
            TRUTH,
        )
    ),
    st.frozensets(NAMES),
    st.sampled_from([APIS, APIS[:1], APIS[1:]]),
    st.sampled_from([None, RuntimeFacts("", "", cdi=None), RuntimeFacts("containerd", "1.6", cdi=False)]),
    st.just(""),
    st.sampled_from([None, 1, 2]),
)


@given(FACTS)
@settings(deadline=None, max_examples=50)
def test_losses_first_for_any_facts(facts):
    findings = judge(facts)
    assert all(one.text and one.code for one in findings)
    assert [one.level for one in findings] == sorted((one.level for one in findings), key="loss unknown change".index)
