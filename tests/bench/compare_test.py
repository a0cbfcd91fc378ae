"""compare_test.py COMPARE: what bench/compare concludes, on made-up programs."""

import importlib.machinery
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

COMPARE = sys.argv.pop(1)


def load():
    loader = importlib.machinery.SourceFileLoader("compare", COMPARE)
    spec = importlib.util.spec_from_loader("compare", loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


compare = load()


class Verdict(unittest.TestCase):
    def test_only_ranges_apart_count(self):
        self.assertEqual(compare.verdict([10, 11, 12], [7, 8, 9]), "faster")
        self.assertEqual(compare.verdict([7, 8, 9], [10, 11, 12]), "slower")

    def test_one_run_inside_the_other_range_is_no_difference(self):
        self.assertEqual(
            compare.verdict([10, 11, 12], [5, 6, 10.5]), "no difference seen")
        self.assertEqual(
            compare.verdict([5, 6, 30], [10, 11, 12]), "no difference seen")

    def test_touching_ranges_are_no_difference(self):
        self.assertEqual(
            compare.verdict([1, 2], [2, 3]), "no difference seen")
        self.assertEqual(
            compare.verdict([2, 3], [1, 2]), "no difference seen")
        self.assertEqual(compare.verdict([1, 1], [1, 1]), "no difference seen")

    def test_chance(self):
        # Two runs each: 6 orders, of which 2 keep the builds apart.
        self.assertAlmostEqual(compare.chance(2), 1 / 3)
        self.assertAlmostEqual(compare.chance(5), 2 / 252)

    def test_builds_take_turns(self):
        self.assertEqual(compare.order(1), [0, 1])
        self.assertEqual(compare.order(3), [0, 1, 1, 0, 0, 1])
        for rounds in range(1, 9):
            turns = compare.order(rounds)
            self.assertEqual(turns.count(0), rounds)
            self.assertEqual(turns.count(1), rounds)


class Report(unittest.TestCase):
    def test_figures_ratios_and_counts(self):
        old = [{"a": 1.0, "b": 2.0, "c": 3.0, "gone": 1.0},
               {"a": 1.2, "b": 2.2, "c": 3.2, "gone": 1.0}]
        new = [{"a": 0.5, "b": 2.1, "c": 4.0, "added": 1.0},
               {"a": 0.6, "b": 2.3, "c": 5.0, "added": 1.0}]
        report = compare.compare(old, new)
        self.assertEqual([f["name"] for f in report["figures"]],
                         ["a", "b", "c"])
        self.assertEqual([f["verdict"] for f in report["figures"]],
                         ["faster", "no difference seen", "slower"])
        self.assertAlmostEqual(report["figures"][0]["ratio"], 0.5)
        self.assertEqual(report["figures"][2]["old"]["max"], 3.2)
        self.assertEqual(report["only_old"], ["gone"])
        self.assertEqual(report["only_new"], ["added"])
        self.assertEqual((report["faster"], report["slower"]), (1, 1))

    def test_a_figure_that_a_run_lacks_is_left_out(self):
        report = compare.compare([{"a": 1, "b": 1}, {"a": 1}],
                                 [{"a": 2, "b": 9}, {"a": 2, "b": 9}])
        self.assertEqual([f["name"] for f in report["figures"]], ["a"])

    def test_times_of_a_bench(self):
        def one(name, seconds):
            return {"name": name, "seconds": {"median": seconds}}

        report = {"ops": [one("x", 1)],
                  "models": [{"prefill": one("prefill", 2),
                              "decode": [one("decode/8", 3)],
                              "first_token_seconds": 4}]}
        self.assertEqual(compare.times(report), {
            "x": 1, "prefill": 2, "decode/8": 3, "first_token": 4})

    def test_what_is_no_time_is_no_report(self):
        for seconds in (0, -1, float("nan"), float("inf"), "x", None):
            report = {"ops": [{"name": "x", "seconds": {"median": seconds}}]}
            with self.assertRaises((ValueError, TypeError), msg=seconds):
                compare.times(report)

    def test_readable(self):
        self.assertEqual(compare.readable(2), "2.00 s")
        self.assertEqual(compare.readable(0.0345), "34.5 ms")
        self.assertEqual(compare.readable(0.9996), "1.00 s")
        self.assertEqual(compare.readable(1.5e-9), "1.50 ns")


# Prints a bench whose time grows with each run, and notes that it ran.
PROGRAM = """#!/usr/bin/env python3
import json, pathlib, sys
assert sys.argv[1] == "bench" and sys.argv[-1] == "--json", sys.argv
log = pathlib.Path({log!r})
with log.open("a", encoding="utf-8") as file:
    file.write({name!r})
runs = log.read_text(encoding="utf-8").count({name!r})
json.dump({{"ops": [{{"name": "x", "seconds": {{"median": {base} + runs}}}}]}},
          sys.stdout)
"""


class Program(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.log = os.path.join(self.folder.name, "log")

    def program(self, name, base, text=PROGRAM):
        path = pathlib.Path(self.folder.name, name)
        path.write_text(text.format(log=self.log, name=name, base=base),
                        encoding="utf-8")
        path.chmod(0o755)
        return str(path)

    def run_compare(self, *arguments, stdout=subprocess.PIPE, **options):
        return subprocess.run([sys.executable, "-B", COMPARE, *arguments],
                              stdout=stdout, stderr=subprocess.PIPE, text=True,
                              check=False, **options)

    def test_slower_is_1_and_turns_are_taken(self):
        done = self.run_compare(self.program("A", 0), self.program("B", 100),
                                "--rounds", "3")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("slower", done.stdout)
        self.assertEqual(pathlib.Path(self.log).read_text("utf-8"), "ABBAAB")

    def test_faster_is_0(self):
        done = self.run_compare(self.program("A", 100), self.program("B", 0),
                                "--rounds", "2", "--json", "--", "--ops")
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads(done.stdout)
        self.assertEqual(report["arguments"], ["--ops"])
        self.assertEqual(report["rounds"], 2)
        self.assertEqual(report["faster"], 1)
        self.assertEqual(report["figures"][0]["old"]["runs"], [101, 102])

    def test_overlap_is_0_and_says_nothing_of_a_difference(self):
        done = self.run_compare(self.program("A", 0), self.program("B", 1))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("0 faster, 0 slower, 1 without", done.stdout)

    def check_cannot_measure(self, done, words):
        self.assertEqual(done.returncode, 2)
        self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)
        self.assertIn(words, done.stderr)

    def test_what_cannot_be_measured_is_2_and_one_line(self):
        good = self.program("A", 0)
        self.check_cannot_measure(self.run_compare(good, "no/such/thing"),
                                  "neither a program")
        self.check_cannot_measure(
            self.run_compare(good, "HEAD", env={"PATH": self.folder.name}),
            "neither a program")
        no_format = self.program("F", 0, "no program")
        self.check_cannot_measure(self.run_compare(good, no_format),
                                  "Exec format error")
        self.check_cannot_measure(self.run_compare(self.folder.name, good),
                                  "no program 'ecphory'")
        bad = self.program(
            "C", 0, "#!/bin/sh\necho ecphory: unknown command >&2\nexit 2\n")
        self.check_cannot_measure(self.run_compare(good, bad),
                                  "unknown command")
        noise = self.program("D", 0, "#!/bin/sh\necho hello\n")
        self.check_cannot_measure(self.run_compare(good, noise),
                                  "not the JSON of a bench")
        for i, output in enumerate((r"\377", '{{"ops": [{{"name": "x", '
                                    '"seconds": {{"median": 0}}}}]}}')):
            bad = self.program(f"E{i}", 0, f"#!/bin/sh\nprintf '{output}'\n")
            self.check_cannot_measure(self.run_compare(good, bad),
                                      "not the JSON of a bench")

    def test_output_that_cannot_be_written_is_2(self):
        builds = self.program("A", 0), self.program("B", 100), "--rounds", "2"
        with open("/dev/full", "w", encoding="utf-8") as full:
            self.check_cannot_measure(self.run_compare(*builds, stdout=full),
                                      "standard output: No space left")
        self.check_cannot_measure(
            self.run_compare(*builds, preexec_fn=lambda: os.close(1)),
            "standard output: Bad file descriptor")

    def test_usage(self):
        done = self.run_compare("one")
        self.assertEqual(done.returncode, 2)
        done = self.run_compare("a", "b", "--rounds", "1")
        self.assertEqual(done.returncode, 2)
        self.assertIn("expected 2 to 1000", done.stderr)


if __name__ == "__main__":
    unittest.main()
