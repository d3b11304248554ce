import pytest

from dpgateway.importing import Imported, ImportedResource, InvalidConfiguration, NotKept, Place, Problem
from dpgateway.importing.variables import explained, without_variables
from tests.support.cost import cost, within


def resource(name, line, **options):
    return ImportedResource(name, Place("theirs", line), "chardev", options)


def lost(line, what, why="why", name=""):
    return NotKept(Place("theirs", line), what, why, name)


def test_each_variable_is_told_once():
    whole = Imported(
        (
            resource("${DOMAIN}/a", 3),
            resource("${DOMAIN}/b", 5, paths=["/dev/${TTY:=ttyS0}"]),
            resource("devic.es/c", 7, paths=["/dev/c"]),
        ),
        (
            lost(9, "the entry of line 9", 'found "${COUNT}", expected an integer'),
            lost(7, "the ids", name="devic.es/c"),
        ),
    )
    kept = without_variables(whole)
    assert [one.name for one in kept.resources] == ["devic.es/c"]
    assert [(one.what, one.place.line, one.why.partition("it is in ")[2]) for one in kept.not_kept] == [
        ("the ids", 7, ""),
        ("the variable ${DOMAIN}", 3, "${DOMAIN}/a, ${DOMAIN}/b"),
        ("the variable ${TTY}", 5, "${DOMAIN}/b"),
        ("the variable ${COUNT}", 9, "the entry of line 9"),
    ]
    assert "`kubectl get -o yaml`" in kept.not_kept[1].why


def test_names_that_are_made_of_variables():
    """A variable in the name of an environment variable is no other one."""
    env = {"PCIDEVICE_{{ _NAME_OF_IT }}": "{kernel}", "X_${DOMAIN}": "${domain}"}
    kept = without_variables(Imported((resource("a.b/{{ .name_of_it }}", 3, nodes=["${domain}"], env=env),)))
    assert [one.what for one in kept.not_kept] == ["the variable {{ .name_of_it }}", "the variable ${domain}"]


def test_variables_of_terraform():
    (lost,) = without_variables(Imported((resource("${var.domain}/a", 3),))).not_kept
    assert lost.what == "the variable ${var.domain}"


def test_variables_of_templates():
    """Helm's and Jinja's; a template of ours has braces twice that are literal."""
    whole = Imported(
        (
            resource("a.b/serial", 3, paths=["/dev/{{ tty }}"]),
            resource("a.b/both", 5, match={"kernel": ["{{- .Values.b -}}"]}, group="x/{{{{ a | default('b') }}}}"),
            resource("a.b/c", 7, match={"attr": {"x": {"present": True}}}, nodes=["/dev/{each:a/{attr:b}}"]),
        )
    )
    kept = without_variables(whole)
    assert [one.name for one in kept.resources] == ["a.b/c"]
    assert [(one.what, one.why.partition("it is in ")[2]) for one in kept.not_kept] == [
        ("the variable {{ tty }}", "a.b/serial"),
        ("the variable {{ .Values.b }}", "a.b/both"),
        ("the variable {{ a | default('b') }}", "a.b/both"),
    ]
    assert "`helm template`" in kept.not_kept[0].why


def test_losses_of_a_resource_that_is_not_there():
    """They would be told of a resource that the variable has taken."""
    whole = Imported((resource("devic.es/a", 3, paths=["/dev/${TTY}"]),), (lost(3, "the ids", name="devic.es/a"),))
    assert [one.what for one in without_variables(whole).not_kept] == ["the variable ${TTY}"]


@pytest.mark.parametrize("text", ["^tty$", "{kernels}", "$(NODE_NAME)", "a${1,2}", "$HOME", "{{}}", "{a:{b}}"])
def test_what_is_no_variable(text):
    whole = Imported((resource("devic.es/a", 3, paths=[text]),), (lost(3, text),))
    assert without_variables(whole) == whole


def test_errors_say_what_to_give():
    place = Place("theirs", 1)
    problems = [Problem(place, found, "an integer", "a hint") for found in ('"${COUNT}"', '"$COUNT"', '"5$"')]
    shells, first, none, other = explained(InvalidConfiguration([*problems, Problem(place, "other")])).problems
    assert (first.found, first.expected) == ('"${COUNT}"', "an integer")
    assert "`kubectl get -o yaml`" in first.hint
    assert shells.hint == first.hint
    assert none.hint == "a hint"
    assert other == Problem(place, "other")


def test_time_grows_with_spaces():
    """Once the spaces before a template's end were taken twice."""

    def read(spaces):
        whole = Imported((resource("a.b/c", 3, paths=["{{ a" + " " * spaces]),))
        assert without_variables(whole).resources == whole.resources

    assert within(30 * cost(read, 40_000), read, 400_000)
