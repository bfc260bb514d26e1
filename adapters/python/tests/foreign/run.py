"""Checks all kernels of a folder, and writes what was found as a page: `python run.py FOLDER --falchion target/ci/falchion --page PAGE`.

Kernels are those that `of_*.py` have written. With `--mutate` each synchronising instruction is left out, one at a time, and counted. `--only`
takes those whose names begin so; then no page is written. The exit code is 1 if a kernel has errors, or is not read.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

PAGE = """# Kernels of others

Kernels that were written for people's own use, and the compilers that most are written in: Triton, CuTe DSL, CUTLASS, Pallas. Each is compiled for Hopper without
a GPU, described with small inputs, and checked by `falchion check`: that it is read, that it runs under every schedule, and that its result is what numpy has in f64.
They are used by many and tested on cards, so what is found may be a false alarm as well as a mistake: *Findings* says how each was judged. A mistake of the description would be found
as well, so each result is compared.

Nothing of theirs is in this repository: the packages are installed, and what their host code would launch is recorded by a stand-in for the CUDA driver. The kernels in
Triton are ours (`adapters/python/tests/foreign` and `adapters/python/tests/kernels.py`); all others are those that the packages ship.

```sh
cd adapters/python/tests/foreign
python of_triton.py FOLDER            # each in an environment with the packages that its first lines name
python of_cutlass.py FOLDER
python of_flash_attention.py FOLDER
python of_quack.py FOLDER
python of_pallas.py FOLDER
cd ../../../..
python adapters/python/tests/foreign/run.py FOLDER {command}
```

*Schedules* are those of `Schedule::sweep`: four fixed ones, and the rest random. Each launches the kernel twice on the same memory. *Errors* and *warnings* are different findings: the
same rule at the same statement in many schedules is one. *Instructions* are those of all warps in both launches of the first schedule. *Mutants* are the kernel with one
synchronising instruction left out: found, of those whose instruction is executed and needed, and after the comma the number of those that are needless. Compilers emit rows of barriers
of which one would do, and waits that wait for nothing in so small a problem. An instruction is needless if no schedule finds anything without it, and if without it no two statements access the same bytes,
one of them writing, that do not do so with it, where only barriers, mbarriers and waits for groups keep statements apart (`emulator::Meetings`, which has none of the clocks and records of the search for races).

{state}

| kernel | what it is | package | PTX lines | instructions | schedules | errors | warnings | mutants |
|---|---|---|---|---|---|---|---|---|
"""

JUDGED = "## Findings"


def header(file):
    """What stands in the first lines of a description: the kernel, and its package."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return [next(line.split(": ", 1)[1] for line in lines if line.startswith(f"# {key}: ")) for key in ("kernel", "package")]


def kept(asked, falchion, file):
    """The row of a kernel: that of an earlier run, if it was kept and complete."""
    place = asked.keep and asked.keep / f"{file.name}.json"
    if place and place.exists():
        return json.loads(place.read_text(encoding="utf-8"))
    row = check(asked, falchion, file)
    if place and not row["why"]:
        asked.keep.mkdir(parents=True, exist_ok=True)
        place.write_text(json.dumps(row), encoding="utf-8")
    return row


def check(asked, falchion, file):
    """The row of a kernel, and its findings."""
    name = file.name.removesuffix(".launch.toml")
    says, package = header(file)
    begun = time.monotonic()
    report, why = run(falchion, file, ["--schedules", str(asked.schedules)], asked.limit)
    row = {"name": name, "says": says, "package": package, "seconds": time.monotonic() - begun, "why": why, "mutants": None, "found": []}
    texts = [file.with_name(f"{name}.ptx"), *file.parent.glob(f"{name}.[0-9].ptx")]
    row["lines"] = sum(len(text.read_text(encoding="utf-8").splitlines()) for text in texts)
    if report is None:
        return row
    ran = report["reports"][0]
    row |= {"schedules": ran["schedules"], "instructions": ran["instructions"], "found": ran["findings"]}
    row["errors"], row["warnings"] = (sum(of["severity"] == severity for of in row["found"]) for severity in ("error", "warning"))
    if asked.mutate is not None and not row["errors"]:
        report, why = run(falchion, file, ["--schedules", str(asked.mutate), "--mutate"], asked.limit)
        verdicts = [mutant["verdict"] for mutant in report["mutants"][0]["mutants"]] if report else []
        found = sum(isinstance(verdict, dict) and "found" in verdict for verdict in verdicts)
        if report:
            row["mutants"] = (found, found + verdicts.count("missed"), verdicts.count("needless"))
            row["missed"] = [mutant for mutant in report["mutants"][0]["mutants"] if mutant["verdict"] == "missed"]
        row["why"] = why
    return row


def run(falchion, file, options, limit):
    """The report of a check as JSON, or why there is none."""
    with tempfile.TemporaryDirectory() as folder:
        to = Path(folder, "report.json")
        command = [falchion, "check", file.name, "--json", to, *options]
        try:
            done = subprocess.run(command, cwd=file.parent, capture_output=True, text=True, timeout=limit)
        except subprocess.TimeoutExpired:
            return None, f"not ended within {limit} s"
        if not to.exists():
            return None, (done.stderr or done.stdout).strip()
        return json.loads(to.read_text(encoding="utf-8")), None


def row_of(row):
    if "schedules" not in row:
        return f"| {row['name']} | {row['says']} | {row['package']} | {row['lines']} | | | {row['why'].splitlines()[0]} | | |"
    mutants = "" if row["mutants"] is None else mutants_of(*row["mutants"])
    counts = f"{row['lines']} | {row['instructions']} | {row['schedules']} | {row['errors']} | {row['warnings']}"
    return f"| {row['name']} | {row['says']} | {row['package']} | {counts} | {mutants} |"


def mutants_of(found, needed, needless):
    return f"{found} of {needed}" + (f", {needless}" if needless else "")


def sums(rows):
    """The last row: sums."""
    ran = [row for row in rows if "schedules" in row]
    mutants = [row["mutants"] for row in ran if row["mutants"]]
    of = [sum(row[key] for row in ran) for key in ("lines", "instructions", "schedules", "errors", "warnings")]
    last = mutants_of(*map(sum, zip(*mutants))) if mutants else ""
    return f"| **all** | {len(rows)} kernels, {sum(row['errors'] == 0 for row in ran)} without errors | | {' | '.join(map(str, of))} | {last} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--falchion", default="falchion", help="the command; by default the one on the path")
    parser.add_argument("--schedules", type=int, default=50, help="random schedules of each kernel")
    parser.add_argument("--mutate", type=int, metavar="SCHEDULES", help="count mutants too, each under so many random schedules")
    parser.add_argument("--jobs", type=int, default=1, help="kernels that are checked at the same time")
    parser.add_argument("--limit", type=int, default=3600, metavar="SECONDS", help="most seconds of one check")
    parser.add_argument("--only", nargs="+", default=[""], metavar="NAME", help="kernels whose names begin so")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep what was found of each kernel there, and run only those that have nothing there")
    parser.add_argument("--page", type=Path, help="the page to write; what it says of findings is kept")
    asked = parser.parse_args()
    falchion = str(Path(asked.falchion).resolve()) if "/" in asked.falchion else asked.falchion
    files = [file for file in sorted(asked.folder.glob("*.launch.toml")) if file.name.startswith(tuple(asked.only))]
    rows = []
    with ThreadPoolExecutor(asked.jobs) as pool:
        for done in as_completed([pool.submit(kept, asked, falchion, file) for file in files]):
            row = done.result()
            rows.append(row)
            print(row_of(row), f"{row['seconds']:.1f} s", flush=True)
            if row["why"]:
                print(f"    {row['why']}")
            for mutant in row.get("missed", []):
                print(f"    missed: {mutant['spot']['file']}:{mutant['spot']['line']}: {mutant['spot']['text']}")
            for of in row["found"]:
                if of["severity"] == "error":
                    print(f"    {of['rule']} in {of['schedules']} schedules: {of['message'].splitlines()[0]}")
                    print(f"        {of['spot']['file']}:{of['spot']['line']}: {of['spot']['text']}")
    rows.sort(key=lambda row: row["name"])
    print(sums(rows))
    if asked.page and asked.only == [""]:
        write(asked, falchion, rows)
    sys.exit(any(row.get("errors", 1) for row in rows))


def write(asked, falchion, rows):
    """Writes the page. What stands below the table is kept: people write it."""
    mutate = f" --mutate {asked.mutate}" if asked.mutate is not None else ""
    command = f"--falchion target/ci/falchion --schedules {asked.schedules}{mutate} --page docs/evidence/foreign.md"
    version = subprocess.run([falchion, "--version"], capture_output=True, text=True).stdout.strip()
    old = asked.page.read_text(encoding="utf-8") if asked.page.exists() else ""
    kept = old[old.index(JUDGED) :] if JUDGED in old else f"{JUDGED}\n\nNone yet.\n"
    table = PAGE.format(command=command, state=f"Made with {version}.") + "\n".join([*map(row_of, rows), sums(rows)])
    asked.page.write_text(f"{table}\n\n{kept}", encoding="utf-8")


if __name__ == "__main__":
    main()
