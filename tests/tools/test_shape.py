"""What is counted of the source."""

from tools.shape import shape, sources

MODULE = '''"""A module."""

class Twice:  # a comment
    def one(self): ...

async def two():
    class Once: ...
'''


def test_it_counts_what_people_wrote(tmp_path):
    for name in ("src/a/one.py", "backends/b/src/b/two.py", "src/a/wire/api_pb2.py", "src/a/skeleton/driver.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(MODULE.replace("Once", name[0]))
    found = shape(sources(tmp_path), tmp_path)
    assert (found.files, found.lines, found.functions, found.commented) == (2, 14, 4, 2)
    assert found.repeated == {"Twice": ["src/a/one.py", "backends/b/src/b/two.py"]}


def test_each_class_has_a_name_of_its_own():
    assert shape(sources()).repeated == {}
