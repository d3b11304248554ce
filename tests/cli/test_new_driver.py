"""What is written is tested in tests/docs, by installing and running it; here is what is refused, and what is said."""

import resource

import pytest


def files(directory):
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())


def test_output_names_files_and_next_steps(line, tmp_path):
    directory = tmp_path / "new place"
    result = line("new-driver", "gpio-lines", "--directory", directory)
    assert (result.exit_code, result.stderr) == (0, "")
    written = [text.split()[0] for text in result.stdout.splitlines() if text.startswith("  ")]
    assert sorted(written[:-4]) == files(directory)
    assert f"  cd '{directory}'\n  pip install -e '.[test]'\n  pytest\n" in result.stdout
    assert "$" not in "".join(path.read_text() for path in directory.rglob("*") if path.is_file())
    assert 'gpio-lines = "dpgateway_gpio_lines"' in (directory / "pyproject.toml").read_text()
    assert "class GpioLinesDriver:" in (directory / "src/dpgateway_gpio_lines/__init__.py").read_text()


def test_directory_has_the_packages_name(line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert line("new-driver", "tpm").exit_code == 0
    assert "pyproject.toml" in files(tmp_path / "dpgateway-tpm")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("My_Sensor", "did you mean my-sensor?"),
        ("a--b", "did you mean a-b?"),
        ("3com", "beginning with a letter; did you mean com?"),
        ("é", "expected at most 40 lower-case letters, digits and single hyphens, beginning with a letter\n"),
        ("a" * 41, "expected at most 40"),
        ("dpgateway-tpm", "without dpgateway"),
        ("fake", "which is an installed driver's name"),
        ("start", "whose package dpgateway_start is installed; expected a name that no package has"),
        ("simulator", "whose package dpgateway_simulator is installed"),
    ],
)
@pytest.mark.usefixtures("fake_driver")
def test_a_name_that_cannot_be_used(line, tmp_path, name, text):
    result = line("new-driver", name, "--directory", tmp_path / "new")
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"NAME: found '{name}', " in result.stderr
    assert text in result.stderr
    assert not (tmp_path / "new").exists()


def test_nothing_is_overwritten(line, tmp_path):
    (tmp_path / "mine").write_text("kept")
    result = line("new-driver", "tpm", "--directory", tmp_path)
    assert result.exit_code == 2
    assert result.stderr == f"{tmp_path} exists, expected a new or an empty directory; --directory chooses another\n"
    assert files(tmp_path) == ["mine"]


def test_directory_not_writable(line):
    result = line("new-driver", "tpm", "--directory", "/proc/new")
    assert result.exit_code == 1
    assert result.stderr == "Error: /proc/new can't be written: No such file or directory\n"


def test_a_full_disk_leaves_nothing(line, tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        result = line("new-driver", "tpm", "--directory", tmp_path / "new")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (result.exit_code, "can't be written: File too large" in result.stderr) == (1, True)
    assert not (tmp_path / "new").exists()
