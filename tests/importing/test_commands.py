import pytest

README = r"""# Install

It's easy. Set `a.b` when you install:

```sh
$ helm repo add charts https://example.org/charts
$ sudo microk8s.helm3 install mine charts/mine $MORE \
    -n mine --set-string version=1.10 \
    --set a.rules[1]='KERNEL=="b"\, ENV{C}=="d"' --set a.rules[0]=c,a.count=3,a.on=true \
    --set=labels."x\.org/y"= | tee log
```

    helm upgrade mine charts/mine --set a.name=other
"""


def values(source):
    """The releases' values."""
    return [one.part("releases", 0, "values") for one in source.documents]


def test_the_values_of_helms_commands(read):
    first, second = values(read(README))
    assert first.plain() == {
        "version": "1.10",
        "a": {"rules": ["c", 'KERNEL=="b", ENV{C}=="d"'], "count": 3, "on": True},
        "labels": {"x.org/y": ""},
    }
    assert second.plain() == {"a": {"name": "other"}}
    rule = first.part("a", "rules", 1)
    assert (rule.place.line, rule.place.key, second.part("a").place.key) == (9, "a.rules[1]", "a")


@pytest.mark.parametrize("text", ["helm install a b --set c=1\n", "#!/bin/sh\nset -e\nhelm install a b --set c=1\n"])
def test_scripts(read, text):
    (one,) = values(read(text))
    assert one.plain() == {"c": 1}


def test_manifests_stay_what_they_are(read):
    """Also if they say how to install something."""
    assert read("# helm install a b --set c=1\nd: 2\n").documents[0].plain() == {"d": 2}
    assert read("d: |\n  helm install a b --set c=1\n").documents[0].plain() == {"d": "helm install a b --set c=1\n"}


@pytest.mark.parametrize(
    "words",
    [
        "--set " + "a." * 5000 + "b=1",
        "--set a[9999999]=1",
        "--set a[0]=1,a.b=2",
        "--set a=1,a.b=2",
        "--set =,",
        "--set 'a=1",
        "--set",
    ],
)
def test_values_that_make_no_sense(read, words):
    """Each command is read as far as possible, and none is an error."""
    source = read(f"helm install {words}\nhelm install a b --set c=1\n")
    assert values(source)[-1].plain() == {"c": 1}


def test_a_release_with_other_values(read):
    (one,) = read("helm upgrade --install a b/c -f other.yaml\nhelm repo add d e\n").documents
    assert one.part("releases", 0, "chart", 4).plain() == "b/c"
    assert "line 1 takes it from other.yaml" in str(read("helm install a b/c -f other.yaml\n").nothing("a word"))
