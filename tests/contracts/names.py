"""Names that a program on the way would take for something else, if it were not told otherwise."""

FOLDERS = (
    "two words",
    " blanks ",
    "it's",
    'say "x"',
    "50%",
    "%d %i",
    "${HOME} $${x} $$",
    "a;b&c|d",
    "-rf",
    "--help",
    "[x]{y}*?",
    "a#b?c=d+e",
    "`tick`",
    "<b>&amp;",
    "~",
    "\u00fcn\u00ef \u6d4b\u8bd5",
    "(a)^b$",
    "a@b!",
)
"""What a folder of a project may be called, and so a lake, a checkpoint and a log."""

COLUMNS = (
    "two words",
    "it's",
    "50%",
    "%s %(name)s {} {0}",
    "${HOME}",
    "a;b--",
    "-x",
    "a.b",
    "`tick`",
    "a#b?c=d+e",
    "<b>&amp;",
    "\u00fcn\u00ef \u6d4b\u8bd5 \U0001f600",
    "^a$",
    "*",
    "[x]",
    "a,b",
    "a:b",
    "a/b",
    "select",
)
"""What a field of an event may be called, and so a column."""
