from dpgateway_simulator.prompt.terminal_verbs import KNOWN
from tests.docs.pages import Page


def test_what_only_the_prompt_has_is_documented() -> None:
    text = Page("reference/command-line.md").text
    for name in ("watch", "help", "quit"):
        assert f"- `{name} {KNOWN[name].words}".rstrip() + f"`: {KNOWN[name].help[:4].capitalize()}" in text
