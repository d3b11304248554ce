import pytest

from dpgateway.importing import Source, flags

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


@pytest.fixture
def read(tmp_path):
    def read(text):
        (tmp_path / "theirs").write_text(text)
        return Source.read(tmp_path / "theirs")

    return read


def test_files_in_a_config_map_that_have_the_word(read):
    one, two = read(MANIFESTS).configs("word")  # the other one isn't YAML, and needn't be
    assert (one.plain(), one.at("word", "inner").line) == ({"word": {"inner": 1}}, 7)
    assert (two.plain(), two.place.line) == ({"word": 2}, 8)


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
