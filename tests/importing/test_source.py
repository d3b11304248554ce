import os

import pytest

from dpgateway.importing import InvalidConfiguration, Place, Source, flags
from dpgateway.importing.source import MOST_DOCUMENTS, MOST_TEXTS
from tests.support.cost import cost, within

MANIFESTS = """\
apiVersion: v1
kind: ConfigMap
data:
  Corefile: ". { errors }: ]"
  one.yaml: |
    word:
      inner: 1
  two.yaml: "word: 2"
---
kind: List
items:
- {apiVersion: v1, kind: Thing, spec: {containers: [{command: [run], args: [-a=1, --b, 2, -c]}]}}
"""


def test_files_in_a_config_map(read):
    one, two = read(MANIFESTS).holding("WORD")  # the other one isn't YAML, and needn't be
    assert (one.plain(), one.at("word", "inner").line) == ({"word": {"inner": 1}}, 7)
    assert (two.plain(), two.place.line) == ({"word": 2}, 8)


def test_references_are_no_objects(read):
    checks = "spec:\n  healthChecks:\n  - {apiVersion: v1, kind: Thing, name: a}\n"
    (one,) = read(f"kind: Thing\nmetadata: {{name: a}}\n---\nkind: Kustomization\n{checks}").objects("Thing")
    assert one.place.line == 1


def test_an_alias_as_a_key(read):
    """Without a space before the colon, as Go's YAML reads it; and no other text is changed."""
    (one,) = read("name: &app plugin\ncontrollers:\n  *app:\n    text: |\n      *app: 1\n").documents
    assert one.plain() == {"name": "plugin", "controllers": {"plugin": {"text": "*app : 1\n"}}}
    (same,) = read("name: &app plugin\n*app : |\n  *app: 1\n").documents
    assert same.plain()["plugin"] == "*app: 1\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a:\n  args:\n  - --config=/etc/x.yaml\n", "a word; line 3 takes it from /etc/x.yaml: give that one"),
        ("a:\n  args:\n  - --config-file\n  - x.json\n", "; line 4 takes it from x.json: give that one"),
        ("helm install a b/a -f x.yaml\n", "; line 1 takes it from x.yaml: give that one"),
        ("a:\n  b: {type: configMap, name: mine}\n", "; line 2 names the ConfigMap mine, which may have it: "),
        ("volumes:\n- configMap:\n    name: mine\n", "; line 2 names the ConfigMap mine, which may have it"),
        ("valuesFrom:\n- kind: ConfigMap\n  name: mine\n", "; line 2 names the ConfigMap mine, which may have it"),
        ("helmCharts:\n- name: a\n  valuesFile: b.yaml\n", "; line 3 takes it from b.yaml: give that one"),
        ("helm:\n  valueFiles:\n  - b.yaml\n", "; line 3 takes it from b.yaml: give that one"),
        ("configMapGenerator:\n- files:\n  - x.yaml=a/b.yaml\n", "; line 3 takes it from a/b.yaml: give that one"),
    ],
)
def test_another_file_has_it(read, text, told):
    assert told in str(read(text).nothing("a word"))


def test_the_command_lines_of_containers(read):
    (words,) = read(MANIFESTS).commands()
    told = [(name, value.value, value.place.line) for name, value in flags(words)]
    assert told == [("a", "1", 12), ("b", "2", 12), ("c", "true", 12)]


def test_the_lines_of_a_command_line(read):
    (words,) = read("run --a 1 \\\n  --b 'x\n y' \\\n  --c=3\n").commands()
    assert [(one.value, one.place.line) for one in words] == [
        ("run", 1),
        ("--a", 1),
        ("1", 1),
        ("--b", 2),
        ("x\n y", 2),
        ("--c=3", 4),
    ]


def test_objects_of_a_kind(read):
    assert [one.below("kind").value for one in read(MANIFESTS).objects("Thing")] == ["Thing"]


def test_line_in_a_later_document(read):
    with pytest.raises(InvalidConfiguration) as caught:
        read("---\n---\nb: 2\nc:3\nd: 4\n")
    (problem,) = caught.value.problems
    assert (problem.place.line, problem.place.column) == (4, 1)


def test_broken_document_costs_no_other_one(read):
    source = read("a: 1\n---\nb: {{ c }}\nd: ]\n")
    assert [one.plain() for one in source.documents] == [{"a": 1}]
    (problem,) = source.broken
    assert problem.place.line in {3, 4}
    assert problem.hint.startswith("it looks like a chart's template")


def test_values_of_a_template(read):
    """They are texts, also without quotes, and in a text that is YAML itself."""
    text = "a: {{ one }}\nb: [{{two}}, 'x{{ three }}']\nc:\n- {{- include \"d\" . | quote }}\n"
    text += 'e: |\n  {"f": {{ g }}, "h": 1}\n'
    (one,) = read(text).documents
    whole = {"a": "{{ one }}", "b": ["{{two}}", "x{{ three }}"], "c": ['{{- include "d" . | quote }}']}
    assert {key: one.part(key).plain() for key in whole} == whole
    (whole,) = read("a: '{{ b: | c }}'").documents
    assert [one.plain() for one in read("").inner(whole.part("a"))] == ["{{ b: | c }}"]
    (inner,) = read(text).holding("f")
    assert (inner.plain(), inner.place.line) == ({"f": "{{ g }}", "h": 1}, 6)


def test_local_variables_of_a_shell(read):
    """They aren't Jsonnet's."""
    with pytest.raises(InvalidConfiguration) as caught:
        read("name() {\n  local a=b\n}\na: [\n")
    assert "Jsonnet" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ('resource "kubernetes_daemonset" "gdp" {\n  metadata {\n    name = "gdp"\n  }\n}\n', "Terraform's language"),
        ('{lib, ...}: {\n  values.image = "gdp";\n}\n', "Nix"),
        ('{\n  lib,\n  ...\n}:\nlet\n  a = 1;\nin\n{\n  data = {\n    b = "gdp";\n  };\n}\n', "Nix"),
        ('package kube\n\ndaemonSet: gdp: {\n\targs: ["--device={\\"name\\": 1}"]\n}\n', "CUE"),
        ('import { Chart } from "cdk8s";\nexport class A extends Chart {\n  b = { c: [1] };\n}\n', "TypeScript"),
        ("spec:\n{% if wanted %}\n  a: {{ b }}\n{% endif %}\n", "Jinja"),
        ('a: \'{{hub fromConfigMap "" "b" "c" hub}}\'\n', "a policy's template"),
        ("local k = import 'k.libsonnet';\nk.daemonSet.new('gdp') + {\n  spec+: {},\n}\n", "Jsonnet"),
    ],
)
def test_other_languages(tmp_path, text, language):
    file = tmp_path / "theirs"
    file.write_text(text)
    with pytest.raises(InvalidConfiguration) as error:
        raise Source.read(file).nothing("a configuration")
    assert error.value.problems[0].hint.startswith(f"it looks like {language}: ")


def test_pipe_without_a_writer(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidConfiguration, match=r"can't be read \(nothing came for 0.1 s\)"):
        Source.read(tmp_path / "pipe", patience=0.1)


def test_pipe_of_another_program(tmp_path):
    ours, theirs = os.pipe()
    os.write(theirs, b"a: 1\n")
    os.close(theirs)
    (one,) = Source.read(tmp_path / f"/dev/fd/{ours}").documents
    os.close(ours)
    assert one.plain() == {"a": 1}


def test_documents_are_counted(read):
    assert len(read("---\na: 1\n" * (MOST_DOCUMENTS - 1)).documents) == MOST_DOCUMENTS - 1
    with pytest.raises(InvalidConfiguration, match=f"more than {MOST_DOCUMENTS} documents"):
        read("---\n" * 1_000_000)


def test_texts_within_texts_are_counted(read):
    text = "word: 1"
    for depth in range(500):
        text = "word: |\n" + "".join(f" {line}\n" for line in text.splitlines())
        if depth == 1:
            assert len(list(read(text).holding("word"))) == 3
    assert len(list(read(text).holding("word"))) == 1 + MOST_TEXTS


def test_time_grows_with_words(read):
    """Once each word took the whole text."""
    first, second = read("run" + " -a" * 20_000), read("run" + " -a" * 200_000)
    assert within(30 * cost(lambda: list(first.commands())), lambda: list(second.commands()))


def test_time_grows_with_documents(tmp_path):
    """Once each document took all the lines above it."""

    def read(documents):
        (tmp_path / "theirs").write_text(("---\na: 1\n" + "#\n" * 30) * documents)
        Source.read(tmp_path / "theirs")

    assert within(30 * cost(read, 90), read, 900)


PAGE = """\
# How to

Don't forget the `rules`:

* First

  ```yaml
  a: 1
  ---
  b: 2
  ```
* Then
---
```sh
cat > values.yaml <<'END'
c:
  - 3
END
helm install it it/it --set d=4
kubectl apply -f - << EOF
e: 5
EOF
```

```json
{"f":
    6}
```

key: {{ a template }}
"""


def test_texts_that_aliases_repeat_are_counted(read):
    """Each is parsed at each use, because its place differs; some uses are usual."""
    text, uses = f"word: {'x' * 5_000}", "\n".join(f"k{number}: *text" for number in range(300))
    few = read(f'a: &text "{text}"\n' + uses.partition("k20:")[0])
    assert len([*few.holding("word")]) == 21
    with pytest.raises(InvalidConfiguration, match=r"theirs:[0-9]+:.*texts that aliases repeat too often"):
        list(read(f'a: &text "{text}"\n{uses}').holding("word"))


def test_texts_for_people(read):
    """The YAML and JSON in its blocks and here-documents; the rest isn't even a problem."""
    source = read(PAGE)
    *documents, release = source.documents
    assert [one.plain() for one in documents] == [{"a": 1}, {"b": 2}, {"f": 6}, {"c": [3]}, {"e": 5}]
    assert release.part("releases", 0, "values").plain() == {"d": 4}
    assert [one.place.line for one in source.documents] == [8, 10, 26, 16, 21, 19]
    assert source.broken == ()


QUOTED = """\
> Mine is
>
> ```yaml
> a:
>   - 1
> ```

> > ~~~
> > b: 2
> > ~~~

$ cat <<EOF
> c: 3
> EOF
"""
INDENTED = """\
# Title

* text: of an item

      a: 1

      b: 2

Then

\tc:
\t  - 3
Not: it: is

    ```yaml
    d: 4
    ```

    e: 5"""


def test_quotations(read):
    assert [(one.plain(), one.place.line) for one in read(QUOTED).documents] == [
        ({"a": [1]}, 4),
        ({"b": 2}, 9),
        ({"c": 3}, 13),
    ]


def test_blocks_that_are_only_indented(tmp_path, read):
    """In Markdown, which a file's name says."""
    (tmp_path / "readme.md").write_text(INDENTED)
    found = [(one.plain(), one.place.line) for one in Source.read(tmp_path / "readme.md").documents]
    assert found == [({"d": 4}, 16), ({"a": 1, "b": 2}, 5), ({"c": [3]}, 11), ({"e": 5}, 19)]
    assert [one.plain() for one in read(INDENTED).documents] == [{"d": 4}]


PASTED = """\
# Title

Mine: it is so

cat a.yaml
kind: ConfigMap
data:
  a.json: |

    {"a": 1}

What I see: nothing.

Data
====
b.json:
----
{
  "b": [2
  ]
}

{"c": 3}

```
I1015 main.go:8] raw list: {
    "d": 4
}
I1015 main.go:9] it is &{E:5}
```

func f() {
"""


def test_objects_and_json_that_are_pasted(tmp_path, read):
    """Between the words of a text for people, which its name says, and in a block between lines of a log."""
    (tmp_path / "issue.md").write_text(PASTED)
    source = Source.read(tmp_path / "issue.md")
    found = [(one.plain(), one.place.line) for one in source.documents if one.below("kind") is None]
    assert found == [({"d": 4}, 26), ({"b": [2]}, 18), ({"c": 3}, 23)]
    (inner,) = source.holding("a")
    assert inner.place.line == 10
    assert [one.plain() for one in read(PASTED).documents] == [{"d": 4}]


PRINTED = """\
apiVersion: v1

[root@node1 ~]# kubectl get cm a \\
    -o yaml
a: 1
[root@node1 ~]#
-----------
user@host:~$ cat b.json
{"b":
    2}
user@host:~$ cat c
no: [yaml
"""


def test_what_commands_printed(read):
    """In a block, and in a text that is all of it; the latter is data, so what is broken there is told."""
    block = "# Title\n\n```\n$ cat a.yaml\na: 1\n$ kubectl apply -f a.yaml\nthing/a created\n```\n"
    (one,) = read(block).documents
    assert (one.plain(), one.place.line) == ({"a": 1}, 5)
    source = read(PRINTED)
    assert [one.plain() for one in source.documents[:3]] == [{"apiVersion": "v1"}, {"a": 1}, {"b": 2}]
    assert [one.place.line for one in source.documents] == [1, 5, 9, 11]
    (broken,) = source.holding("no")
    assert (broken.value, broken.problems[0].found) == (None, "broken YAML")
    assert list(source.holding("created")) == []


def test_numbers_of_notes(read):
    """As people copy them with the YAML from a page of documentation."""
    text = '# Title\n\n```\na: 1\n  b: 2\n  - c: "10DE:1DB6" 3\n    d: true 4\n    e: 5\n# ...\n```\n'
    (one,) = read(text).documents
    assert one.plain() == {"a": {"b": [{"c": "10DE:1DB6", "d": True, "e": 5}]}}
    (same,) = read("# Title\n\n```\na: 1\nb: true 2\n```\n").documents
    assert same.plain() == {"a": 1, "b": "true 2"}


@pytest.mark.parametrize(("above", "lines"), [("```yaml", [6]), ("```json\n", [7]), ("~~~ {.yml}", [6]), ("```", [])])
def test_a_broken_block(read, above, lines):
    """If it is said to be YAML or JSON, a key in it isn't lost without a word."""
    text = f"# Title\n\n{above}\na:\n  b: [\n{above[:3]}\n\n```\nb: 1\n```\n"
    source = read(text)
    *broken, found = source.holding("b")
    assert found.plain() == {"b": 1}
    assert [one.problems[0].place.line for one in broken] == lines
    assert list(source.holding("c")) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("readme.md", "# Title\n\nA text: of a: b\n- **Item**: c\n"),
        ("readme.md", "- @x\n\n---\n\n`y`\n"),
        ("script", "#!/bin/sh\nif [ a ]; then\n  echo 'b: c: d'\nfi\n"),
    ],
)
def test_texts_for_people_without_blocks(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    (problem,) = Source.read(tmp_path / name).nothing("a word").problems
    assert problem.found == "nothing of it"


def test_values_that_sphinx_fills_in(read):
    """In a file that a page includes."""
    (one,) = read("a:\n  version: |version-of-it|\n  b: |\n    c: |d|\n").documents
    assert one.plain() == {"a": {"version": "version-of-it", "b": "c: d\n"}}


def test_values_that_are_read_in_two_ways(read):
    """Go's YAML has octal numbers, as in the modes of volumes, and they cost nothing."""
    (one,) = read("a:\n- b: 0644\n  c: 1\n").holding("c")
    assert one.part("c").value == 1


ASCIIDOC = """\
= Title

.Example
[source,yaml]
----
a: <name> <1>
b:
- c # <2>
----
<1> The name.

[source,terminal]
----
$ oc apply -f x.yaml
----
"""
SPHINX = """\
Title
=====

  .. code-block:: yaml
     :substitutions:

     a:
       image: |image-of-it|
       b: |
         c

Not: it: is

.. code-block:: json

  {"d": 1}
"""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (ASCIIDOC, [(6, {"a": "<name>", "b": ["c"]})]),
        (SPHINX, [(7, {"a": {"image": "image-of-it", "b": "c\n"}}), (16, {"d": 1})]),
    ],
)
def test_blocks_of_asciidoc_and_sphinx(read, text, found):
    assert [(one.place.line, one.plain()) for one in read(text).documents] == found
    broken = list(read(text.replace("a:", "a: [")).holding("b"))
    assert [one.problems[0].found for one in broken] == ["broken YAML"]


def test_scripts(read):
    script = "#!/bin/bash\nset -e\nkubectl apply -f - <<EOF\na: 1\nEOF\n"
    assert [one.plain() for one in read(script).documents] == [{"a": 1}]
    terraform = 'resource "a" "b" {\n  yaml = <<-YAML\n    c: 1\n  YAML\n}\n'
    assert [one.plain() for one in read(terraform).documents] == [{"c": 1}]
    assert "Terraform" in str(read(terraform).nothing("a word"))
    assert " from -" not in str(read("kubectl apply -f -\n").nothing("a word"))


def test_manifests_with_scripts_stay_what_they_are(read):
    assert [one.plain() for one in read("a: |\n  cat <<EOF\n  b: 1\n  EOF\n").documents] == [
        {"a": "cat <<EOF\nb: 1\nEOF\n"}
    ]


def test_time_grows_with_blocks(read):
    """Of blocks and here-documents without an end, too."""
    once = "# x\n\n```\n<<A\nhelm install a b --set a=b\n\n\n.. code::\n\n  \n    \n[source]\n----\n"
    assert within(30 * cost(read, once * 400), read, once * 4_000)


def test_time_grows_with_blank_lines(read):
    """Once a line's indentation took all blank lines below it."""

    def broken(lines):
        with pytest.raises(InvalidConfiguration):
            read("a: [\n" + "\n" * lines)

    def inner(lines):
        source = read("a: |+\n  word" + "\n" * lines)
        assert len(list(source.everywhere("word"))) == 2

    for work in (broken, inner):
        assert within(30 * cost(work, 1_000), work, 10_000)


@pytest.mark.parametrize(("before", "many", "after"), [("", "~", "`"), ("[source]\n----\na: 1", " ", "b\n----\n")])
def test_time_grows_with_a_line(read, before, many, after):
    """Once each tilde, or space, took all those after it."""
    assert within(30 * cost(read, before + many * 2_000 + after), read, before + many * 20_000 + after)


def test_time_grows_with_places_in_a_text(read):
    """Each looks around itself for what selects its nodes. Once each parsed the text."""

    def selectors(places):
        source = read("values: |\n  nodeSelector: {a: b}\n  many:\n" + "  - word: 1\n" * places)
        assert [source.selector_at(one.place) for one in source.holding("word")] == [{"a": "b"}] * places

    assert within(30 * cost(selectors, 15), selectors, 150)


def test_definitions_of_kinds(read):
    """Their schemas have the keys of objects."""
    source = read(
        "kind: CustomResourceDefinition\nspec: {schema: {properties: {word: {type: object}}}}\n---\nword: 1\n"
    )
    assert [one.place.line for one in source.holding("word")] == [4]
    alone = read("kind: List\nitems:\n- kind: CustomResourceDefinition\n  spec: {word: 1}\n")
    assert list(alone.holding("word")) == []
    assert "; line 3 defines a kind of objects: give " in str(alone.nothing("a word"))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("helm:\n  values: |\n    nodeSelector: {a: b}\n    args: [x]\n", 4),
        ("patch: |-\n  spec:\n    nodeSelector:\n      a: b\n    containers:\n    - args: [x]\n", 6),
        ("- path: /spec/args\n  value: [x]\n- path: /spec/nodeSelector\n  value: {a: b}\n", 2),
        ("patch: |\n  - path: /spec/nodeSelector\n    value: {a: b}\n  - path: /spec/args\n    value: [x]\n", 5),
    ],
)
def test_texts_that_select_the_nodes(read, text, line):
    assert read(text).selector_at(Place("theirs", line)) == {"a": "b"}


def test_a_broken_text_selects_no_nodes(read):
    assert read("values: |\n  nodeSelector: [\n  args: x\n").selector_at(Place("theirs", 3)) == {}


def test_what_selects_the_nodes(read):
    text = """\
kind: HelmRelease
metadata: {name: a}
spec:
  nodeSelector: {all: "1"}
  controllers:
    left:
      pod: {nodeSelector: {b: c, d: e}}
      args:
      - |
        name: x
    right:
      pod:
        affinity: {nodeAffinity: {required: x}}
      args: [y]
    middle: {args: [z]}
---
kind: ConfigMap
data: {a: b}
"""
    source = read(text)
    assert [source.nodes_at(Place("theirs", line)) for line in (10, 14, 15, 18)] == [
        "nodeSelector b=c,d=e",
        "nodeAffinity",
        "nodeSelector all=1",
        "",
    ]
