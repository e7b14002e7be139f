"""The command line of the benchmarks: `ikebana bench list` and `ikebana bench NAME [options]`.

Benchmarks with a common name prefix form a family: `ikebana bench ingest` runs `ingest-load` and the other `ingest-`
benchmarks one after the other, with their default options.

Errors in the request are reported before the run starts: an unknown name, an invalid value, a destination that cannot
be written, a missing matplotlib.
"""

from __future__ import annotations

import argparse
import difflib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, fields
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from ikebana.cli import UsageError
from ikebana_bench.progress import Progress
from ikebana_bench.report import Outcome, figure_paths, require_matplotlib, table, write_figure, write_json
from ikebana_bench.scenario import AnyScenario, Parameters, Results, VerificationError


def list_benchmarks(scenarios: Sequence[type[AnyScenario]], out: Console) -> None:
    listing = Table("benchmark", "claim", "paper")
    for scenario in scenarios:
        listing.add_row(scenario.name, scenario.claim, scenario.paper)
    out.print(listing)


def find(name: str, scenarios: Sequence[type[AnyScenario]]) -> type[AnyScenario]:
    """Return the scenario named `name`; the error for an unknown name suggests the most similar one."""
    by_name = {scenario.name: scenario for scenario in scenarios}
    if name in by_name:
        return by_name[name]
    nearest = difflib.get_close_matches(name, by_name, n=1, cutoff=0.5)
    suggestion = f'did you mean "{nearest[0]}"? ' if nearest else ""
    raise UsageError(f'there is no benchmark "{name}"', hint=f"{suggestion}`ikebana bench list` lists all benchmarks")


def family(name: str, scenarios: Sequence[type[AnyScenario]]) -> list[type[AnyScenario]]:
    """Return the scenarios whose names start with `name` and a hyphen; none if `name` is itself a scenario."""
    if any(scenario.name == name for scenario in scenarios):
        return []
    return [scenario for scenario in scenarios if scenario.name.startswith(f"{name}-")]


def run_family(
    name: str, scenarios: Sequence[type[AnyScenario]], options: Sequence[str], out: Console, err: Console
) -> None:
    """Run the benchmarks of a family, each with its default options."""
    if options:
        names = ", ".join(scenario.name for scenario in scenarios)
        raise UsageError(
            f'"{name}" is a family of benchmarks and takes no options', hint=f"pass the options to one of: {names}"
        )
    for scenario in scenarios:
        run(scenario, (), out, err)


def run(scenario_class: type[AnyScenario], options: Sequence[str], out: Console, err: Console) -> None:
    """Run one benchmark with these command-line options, print its results, and write the requested files."""
    chosen = vars(_parser(scenario_class).parse_args(options))
    json_path, figure_path = chosen.pop("json"), chosen.pop("figure")
    _check_destinations(json_path, figure_path)
    scenario, parameters = scenario_class(), scenario_class.parameters(**chosen)
    failure: VerificationError | None = None
    results: Results = {}
    try:
        results = _measure(scenario, parameters, err)
    except VerificationError as error:
        failure = error
    outcome = Outcome(scenario, parameters, failure is None, results)
    if json_path:
        write_json(outcome, json_path)
    if failure:
        raise failure
    out.print(f"{scenario.name}: {scenario.claim}", table(outcome), "verified", sep="\n")
    if figure_path:
        _draw(outcome, figure_path, err)


def _measure(scenario: AnyScenario, parameters: Parameters, err: Console) -> Results:
    with Progress(err) as progress:
        results = scenario.run(parameters, progress)
    if not scenario.verifications:
        raise VerificationError(
            f'benchmark "{scenario.name}" verified nothing', hint="call self.verify in its run method"
        )
    return results


def _draw(outcome: Outcome, path: Path, err: Console) -> None:
    figures = outcome.scenario.figures(outcome.results)
    if figures:
        write_figure(figures, path)
    else:
        err.print(f"{outcome.scenario.name} has no figure to draw")


def _check_destinations(json_path: Path | None, figure_path: Path | None) -> None:
    targets = [json_path] if json_path else []
    if figure_path:
        require_matplotlib()
        targets += figure_paths(figure_path)
    for target in targets:
        if target.is_dir() or not os.access(target.parent, os.W_OK):
            raise UsageError(
                f'cannot write "{target}"',
                detail="it is a folder" if target.is_dir() else "its folder does not exist or is read-only",
                hint="choose a file in an existing, writable folder",
            )


def _parser(scenario: type[AnyScenario]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"ikebana bench {scenario.name}", description=f"{scenario.claim} (paper: {scenario.paper})"
    )
    for field in fields(scenario.parameters):
        _add_option(parser, field)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to FILE")
    parser.add_argument("--figure", type=Path, metavar="PATH", help="draw the figure to PATH.png and PATH.svg")
    return parser


def _add_option(parser: argparse.ArgumentParser, parameter: Field[Any]) -> None:
    option = "--" + parameter.name.replace("_", "-")
    default, metadata = parameter.default, parameter.metadata
    shown = f"{default:_}" if type(default) is int else default
    text = f"{metadata['help']} (default: {shown})".replace("%", "%%")
    if isinstance(default, bool):
        parser.add_argument(
            option, dest=parameter.name, default=default, help=text, action=argparse.BooleanOptionalAction
        )
    else:
        parser.add_argument(
            option,
            dest=parameter.name,
            default=default,
            help=text,
            type=_converter(type(default), metadata),
            choices=metadata["choices"] or None,
        )


def _converter(kind: Callable[[str], Any], metadata: Mapping[str, Any]) -> Callable[[str], Any]:
    def convert(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            expected = "an integer" if kind is int else "a number"
            raise argparse.ArgumentTypeError(f'"{text}" is not {expected}') from None
        if metadata["minimum"] is not None and not value >= metadata["minimum"]:
            raise argparse.ArgumentTypeError(f"{text} is less than {metadata['minimum']}")
        return value

    return convert
