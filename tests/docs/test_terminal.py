"""What a terminal shows is drawn line by line, as it stays."""

import os
import subprocess

import pytest
from tests.docs.terminal import drawn_lines, run, svg


@pytest.fixture
def show(tmp_path):
    return lambda *commands: run(commands, tmp_path, os.environ)


def test_commands_share_a_shell_and_each_has_its_own_lines(show):
    first, second = show("cd / && echo in $PWD", "pwd")
    assert (first.command, first.texts) == ("cd / && echo in $PWD", ["in /"])
    assert (second.command, second.texts) == ("pwd", ["/"])


def test_a_line_that_is_drawn_again_is_there_once(show):
    [step] = show(r"printf 'one\ntwo\n\033[1A\033[2Kthree\r\033[1A\033[2Kfour\n'")
    assert step.texts == ["four", "three"]


def test_colours_are_classes_and_texts_are_escaped(show):
    [step] = show(r"printf '\033[1;32ma<b\033[0m&c\n'")
    picture = svg([step], "<title>")
    assert '<tspan class="bold green">a&lt;b</tspan>&amp;c</text>' in picture
    assert drawn_lines(picture) == [f"$ {step.command}", "a<b&c"]


def test_a_command_that_fails_is_reported_with_what_it_said(show):
    with pytest.raises(subprocess.CalledProcessError) as raised:
        show("echo here", "echo there >&2; exit 3", "echo not reached")
    assert raised.value.returncode == 3
    assert "here" in raised.value.output
    assert "there" in raised.value.stderr
