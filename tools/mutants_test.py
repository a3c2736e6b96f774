"""Patterns of tools/mutants match what they should in small texts, and the tool finds, plants and names faults in a small
tree with a real ninja build. Whether the mutants of this repository have their place is left to tools/mutants --check."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import textwrap
import tomllib

import pytest
from mutant_patterns import Pattern, bodies_of, functions_of, tokens_of

TOOL = pathlib.Path(__file__).parent / "mutants"


def planted(find: str, replace: str, text: str) -> list[str]:
    """The text with the replacement, for each match."""
    pattern, tokens = Pattern(find, replace), tokens_of(text)
    return [pattern.apply(text, tokens, match) for match in pattern.matches(tokens)]


@pytest.mark.parametrize(
    "text",
    [
        "if (a.b(1) && c) return;",
        "if (a.b( 1 )\n    && c)\n  return ;",
        "if (a /* the } first */ .b(1)  // why; and how\n && c) return;",
    ],
)
def test_a_match_does_not_depend_on_white_space_and_comments(text: str) -> None:
    assert planted("if (a.b(1) && c) return;", "go();", f"x; {text} y;  // z") == [
        "x; go(); y;  // z"
    ]


def test_the_rest_of_the_text_keeps_its_bytes() -> None:
    text = "#define A(x) x; \\\n  y;\n  #  if y;\nint  a\t= 1 ; // one\r\n\n y; /* } */ b();\n"
    assert planted("y;", "z;", text) == [text.replace(" y; /*", " z; /*")]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("aa + b", 0),  # a part of a token
        ("f(a++b)", 0),  # another operator
        ('"a + b"', 0),
        ("'a' + b", 0),
        ('R"x(a + b)" a + b)x"', 0),
        ("// a + b", 0),
        ("1'000, a + b, 1'000", 1),  # no character literal
        ("a + b, (a)+(b), a + b", 2),
    ],
)
def test_a_pattern_matches_whole_tokens(text: str, count: int) -> None:
    assert len(planted("a + b", "", text)) == count


def test_adjacent_strings_are_one_token() -> None:
    assert planted('f("one two")', "g", 'f("one "\n  "two"); f("one", "two");') == [
        'g; f("one", "two");'
    ]
    assert planted('f("one " "two")', "g", 'f("one two");') == ["g;"]


def test_two_closing_angle_brackets_are_two_tokens() -> None:
    assert planted("A<B<C>>", "D", "A<B<C> > x;") == ["D x;"]


def test_a_variable_matches_one_identifier_and_the_same_each_time() -> None:
    assert planted("$a = f($a, $b);", "g($b, $a);", "x = f(x, y); x = f(y, x);") == [
        "g(y, x); x = f(y, x);"
    ]
    for other in ("this = 1;", "4 = 1;", "return = 1;", "f() = 1;"):
        assert planted("$a = 1;", "", other) == []


@pytest.mark.parametrize(
    ("find", "replace", "text", "expected"),
    [
        ("f(..., c)", "g(...)", "f(a, b(1, 2), c);", "g(a, b(1, 2));"),
        ("f(...)", "g(...)", "f();", "g();"),
        ("f(...)", "g(...)", "f([] { x; return 1; }, 2);", "g([] { x; return 1; }, 2);"),
        ("f(...) + g(...)", "...", "f(1) + g(2)", "1"),
        ("f(... + $a)", "g($a, ...)", "f(1 + 2 + b)", "g(b, 1 + 2)"),
        ("return ...;", "stop;", "return A{b(1); c};", "stop;"),
        ("f(..., ...)", "g(...; ...)", "f(a, b, c)", "g(a; b, c)"),
        ("f(...)", "g(...)", "f(a  // why\n   , b)", "g(a  // why\n   , b)"),
    ],
)
def test_dots_match_a_run_with_brackets_in_pairs(
    find: str, replace: str, text: str, expected: str
) -> None:
    assert planted(find, replace, text) == [expected]


@pytest.mark.parametrize(
    ("find", "text"),
    [
        ("f ... g", "f(); g"),
        ("f(... g", "f(1) g"),
        ("f { ... g", "f { } g"),
        ("f[... g", "f] g"),
        ("f(...) g", "f(1)(2) g"),
    ],
)
def test_dots_pass_no_end_of_a_statement_and_no_lone_bracket(find: str, text: str) -> None:
    assert planted(find, "", text) == []


@pytest.mark.parametrize(
    ("find", "replace", "why"),
    [
        ("", "x", "begins and ends"),
        ("// only a comment", "x", "begins and ends"),
        ("... x", "", "begins and ends"),
        ("x ...", "", "begins and ends"),
        ("f($a)", "f($b)", "binds no"),
        ("f(...)", "f(..., ...)", "more"),
    ],
)
def test_a_wrong_pattern_is_an_error(find: str, replace: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Pattern(find, replace)


FUNCTIONS = """
namespace a::b {
extern "C" {
int Plain(int x) { if (x) { return 1; } return 2; }
}
class CAPABILITY("mutex") Outer final : public Base<int> {
 public:
  Outer() : first_{1}, second_(2), third_(f([] { return 3; })) { body(); }
  virtual ~Outer() {}
  int get() const override REQUIRES(mutex_) { return first_; }
  bool operator()(int x) const { return x; }
  struct Inner { void Run() { go(); } int x{3}; };
  std::function<void(int)> made_ = [](int) { lambda(); };

 private:
  int first_ = 0;
};
enum class Kind { kOne, kTwo };
template <typename T, typename = std::enable_if_t<true>>
std::vector<std::function<T()>> Outer::Make(T (*f)()) noexcept {
  struct Local { void Hidden() {} };
  return {};
}
constexpr int kTable[] = {1, f(2)};
bool operator<(const Kind& a, const Kind& b) { return true; }
auto Arrow(int x) -> std::pair<int, int> { return {x, x}; }
}  // namespace a::b
"""


def test_functions_and_their_classes_are_found() -> None:
    assert [name for name, _, _ in functions_of(tokens_of(FUNCTIONS))] == [
        "Plain",
        "Outer::Outer",
        "Outer::~Outer",
        "Outer::get",
        "Outer::operator()",
        "Outer::Inner::Run",
        "Outer::Make",
        "operator<",
        "Arrow",
    ]


@pytest.mark.parametrize(
    ("function", "body"),
    [
        ("Outer::Outer", "{ body(); }"),
        ("Run", "{ go(); }"),
        ("Inner::Run", "{ go(); }"),
        ("Outer::Run", None),
        ("un", None),
    ],
)
def test_a_function_is_named_with_or_without_its_class(function: str, body: str | None) -> None:
    tokens = tokens_of(FUNCTIONS)
    texts = [
        FUNCTIONS[tokens[begin].begin : tokens[end].end]
        for begin, end in bodies_of(function, tokens)
    ]
    assert texts == ([body] if body else [])


def test_the_list_of_mutants_is_well_formed() -> None:
    mutants = tomllib.loads((TOOL.parent / "mutants.toml").read_text())["mutant"]
    assert len({each["name"] for each in mutants}) == len(mutants)
    for each in mutants:
        Pattern(each["find"], each["replace"])
        required = {"name", "in", "find", "replace", "target"}
        assert required <= each.keys() <= required | {"function", "only", "through"}


NINJA = """rule cc
  command = c++ -I{root} -MD -MT $out -MF $out.d -o $out -c $in
  deps = gcc
  depfile = $out.d
rule ar
  command = rm -f $out && ar qc $out $in
rule link
  command = : && c++ $in -o $out && :
build limit.cc.o: cc {root}/gangway/part/limit.cc
build some_test.cc.o: cc {root}/gangway/part/some_test.cc
build libpart.a: ar limit.cc.o
build some_test: link some_test.cc.o libpart.a
"""

SOURCES = {
    "gangway/part/limit.cc": """
        int Limit() { int limit = 4; return limit; }
        int Unused() { int limit = 4; return limit; }
        """,
    "gangway/part/twice.h": "inline int Twice(int value) { return 2 * value; }\n",
    "gangway/part/some_test.cc": """
        #include "gangway/part/twice.h"
        int Limit();
        int main() { return Limit() == 4 && Twice(2) == 4 ? 0 : 1; }
        """,
}


class Tree:
    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        for path, text in SOURCES.items():
            self.write(path, textwrap.dedent(text))
        self.write("build/dev/build.ninja", NINJA.format(root=root))
        self.mutants: list[str] = []

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def build(self) -> None:
        command = ["ninja", "-C", str(self.root / "build/dev")]
        subprocess.run(command, check=True, capture_output=True, timeout=120)

    def mutant(self, name: str, find: str, replace: str, **more: str) -> None:
        fields = {"name": name, "in": "part", "find": find, "replace": replace}
        fields |= {"target": "some_test"} | more
        lines = [f"{key} = '{value}'" for key, value in fields.items()]
        self.mutants.append("\n".join(["[[mutant]]", *lines, ""]))

    def run(self, *flags: str) -> tuple[int, str]:
        self.write("tools/mutants.toml", "\n".join(self.mutants))
        command = [sys.executable, str(TOOL), "--root", str(self.root), *flags]
        made = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
        return made.returncode, made.stdout + made.stderr


@pytest.fixture
def tree(tmp_path: pathlib.Path) -> Tree:
    return Tree(tmp_path)


def test_check_names_the_stale_ones_and_needs_no_build(tree: Tree) -> None:
    tree.mutant("placed", "2 * $a", "3 * $a")
    tree.mutant("absent", "5 * $a", "3 * $a")
    tree.mutant("in a test only", "Limit() == 4", "true")
    tree.mutant("ambiguous", "int $a = 4;", "int $a = 5;")
    tree.mutant("in a function", "int $a = 4;", "int $a = 5;", function="Limit")
    tree.mutant("in no folder", "2 * $a", "3 * $a", **{"in": "other"})
    tree.mutant("wrong", "... a", "")
    tree.mutant("misspelt", "2 * $a", "3 * $a", functoin="Twice")
    code, output = tree.run("--check")
    assert code == 1
    assert "2 of 8 mutants have their place" in output
    stale = [line for line in output.splitlines() if line.startswith("STALE: ")]
    assert [line.split(": ")[1] for line in stale] == [
        *("absent", "in a test only", "ambiguous", "in no folder", "wrong", "misspelt")
    ]
    assert "2 times in gangway/part; gangway/part/limit.cc:2; gangway/part/limit.cc:3" in stale[2]
    assert tree.run("--check", "--only", "in a function")[0] == 0


def test_two_mutants_of_one_name_are_an_error(tree: Tree) -> None:
    tree.mutant("same", "2 * $a", "3 * $a")
    tree.mutant("same", "2 * $a", "4 * $a")
    assert tree.run("--check") == (1, "mutants: two have the name same\n")


@pytest.mark.parametrize(
    ("flags", "stale"),
    [
        (["--part", "1/1"], ["a0", "b1", "a2", "b3", "a4"]),
        (["--part", "1/2"], ["a0", "a2", "a4"]),
        (["--part", "2/2"], ["b1", "b3"]),
        (["--part", "2/2", "--only", "a"], ["a2"]),
    ],
)
def test_a_part_is_every_nth_of_those_selected(
    tree: Tree, flags: list[str], stale: list[str]
) -> None:
    for name in ("a0", "b1", "a2", "b3", "a4"):
        tree.mutant(name, "absent", "")
    lines = tree.run("--check", *flags)[1].splitlines()
    assert [line.split(": ")[1] for line in lines if line.startswith("STALE")] == stale


@pytest.mark.parametrize("part", ["0/2", "3/2", "1", "1/0", "a/b"])
def test_a_part_that_does_not_exist_is_an_error(tree: Tree, part: str) -> None:
    tree.mutant("placed", "2 * $a", "3 * $a")
    assert tree.run("--check", "--part", part)[0] == 2


def test_selecting_no_mutant_is_an_error(tree: Tree) -> None:
    tree.mutant("placed", "2 * $a", "3 * $a")
    assert tree.run("--check", "--only", "other")[0] == 1
    assert tree.run("--check", "--part", "2/2")[0] == 1


def test_faults_are_planted_one_at_a_time_and_survivors_named(tree: Tree) -> None:
    tree.build()
    tree.mutant("absent", "5 * $a", "")
    tree.mutant("in a library", "int $a = 4;", "int $a = 5;", function="Limit")
    tree.mutant("in a header", "2 * $a", "3 * $a")
    tree.mutant("in a header that no source there includes", "2 * $a", "3 * $a", through="other")
    tree.mutant("harmless", "int $a = 4;", "int $a = 5;", function="Unused")
    tree.mutant("not C++", "return 2", "return")
    code, output = tree.run()
    assert code == 1
    lines = output.splitlines()
    assert lines[0].startswith("STALE: absent: ")
    for outcome in (
        "found, 0 s: in a library",
        "found, 0 s: in a header",
        "SURVIVES (passes), 0 s: harmless",
        "2 of 6 mutants were found, 1 are stale",
    ):
        assert any(line.replace("1 s", "0 s") == outcome for line in lines), output
    assert output.count("is not built: ") == 2 and "no source in gangway/other includes" in output
    assert not [path for path in (tree.root / "build/mutants/overlay").rglob("*") if path.is_file()]
    for path, text in SOURCES.items():
        assert (tree.root / path).read_text() == textwrap.dedent(text)
    assert tree.run("--only", "in a library")[0] == 0


def test_a_test_that_fails_without_a_fault_proves_nothing(tree: Tree) -> None:
    tree.write("gangway/part/twice.h", "inline int Twice(int value) { return 5 * value; }\n")
    tree.build()
    tree.mutant("in a library", "int $a = 4;", "int $a = 5;", function="Limit")
    code, output = tree.run()
    assert code == 1 and "some_test fails without any fault" in output
