"""Run random schedules of the whole stack; what fails is shrunk, and can be replayed with its diagram.

python -m antiphon.testing.torture --seeds 1000 --from 0 --minutes 10
python -m antiphon.testing.torture --replay 17
python -m antiphon.testing.torture --replay out/torture/stack-17.json
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from antiphon.testing.torture.effects import EFFECTS, effects_of
from antiphon.testing.torture.judge import Flaw, judge
from antiphon.testing.torture.run import Tortured, run
from antiphon.testing.torture.schedule import Schedule, draw, features, from_json
from antiphon.testing.torture.shrink import shrink

_TELL_S = 60.0  # between two words on how far it is


def flaws_of(schedule: Schedule) -> list[Flaw]:
    """Run a schedule, and say what is wrong, the gravest first."""
    return judge(run(schedule))[0]


def main() -> int:
    """Run seeds until they are used up or time is; exit 1 if one failed."""
    parser = argparse.ArgumentParser(prog="python -m antiphon.testing.torture", description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=1000, help="how many")
    parser.add_argument("--from", dest="first", type=int, default=0, help="first seed")
    parser.add_argument("--minutes", type=float, default=10, help="stop after so long")
    parser.add_argument("--small", action="store_true", help="of two to four members, without what takes longest")
    parser.add_argument("--replay", metavar="SEED|FILE", help="run one schedule again, and write its trace")
    parser.add_argument("--draws", action="store_true", help="run nothing; print how often the seeds draw each thing")
    parser.add_argument("--effects", action="store_true", help="print how often each thing came about, and where first")
    parser.add_argument("--go-on", action="store_true", help="do not stop at the first that fails; shrink nothing")
    parser.add_argument("--out", type=Path, default=Path("out/torture"), help="where failing schedules are written")
    args = parser.parse_args()
    if args.replay is not None:
        return _replay(args.replay, args.out, small=args.small)
    if args.draws:
        return _print_draws(range(args.first, args.first + args.seeds), small=args.small)
    end, examined, failed = time.monotonic() + 60 * args.minutes, Counter[str](), 0
    tried, tell_at = 0, time.monotonic() + _TELL_S
    effects: dict[str, list[int]] = {effect: [] for effect in EFFECTS}  # with the seeds that brought them about
    for seed in range(args.first, args.first + args.seeds):
        gc.disable()  # what a world consists of is garbage all at once, at its end; looked at before, it seems to last
        try:
            flaws, counts, happened = _try(draw(seed, small=args.small))
        finally:
            gc.enable()
        for effect in happened:
            effects[effect].append(seed)
        examined += counts
        tried += 1
        if flaws:
            failed += 1
            print(f"seed {seed}: {flaws[0]}", file=sys.stderr, flush=True)
            if not args.go_on:
                return _shrink(draw(seed, small=args.small), flaws[0], args.out)
        if time.monotonic() > tell_at:
            tell_at += _TELL_S
            print(f"{tried} schedules so far, {failed} of them wrong", file=sys.stderr, flush=True)
        if time.monotonic() > end:
            break
    for effect, seeds in effects.items() if args.effects else ():
        print(f"{len(seeds):6}  {effect}: {f'first with seed {seeds[0]}' if seeds else 'never'}")
    about = ", ".join(f"{count} {what}" for what, count in sorted(examined.items()))
    which = f"{tried} {'small ' if args.small else ''}schedules from seed {args.first} on"
    print(f"{which}, {failed} of them wrong, in {time.process_time():.0f} s of a processor; examined: {about}")
    return 1 if failed else 0


def _try(schedule: Schedule) -> tuple[list[Flaw], Counter[str], Iterable[str]]:
    """Run a schedule, and say what is wrong, what was examined and what came about."""
    tortured = Tortured(schedule)
    flaws, counts = judge(outcome := tortured.run())
    return flaws, counts, list(effects_of(tortured, outcome))


def _shrink(schedule: Schedule, flaw: Flaw, out: Path) -> int:
    print("shrinking ...", file=sys.stderr)
    small = shrink(schedule, lambda candidate: any(other.rule == flaw.rule for other in flaws_of(candidate)))
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"stack-{schedule.seed}.json"
    path.write_text(small.to_json())
    print(f"smallest schedule found:\n\n{small.to_json()}\n")
    for other in flaws_of(small)[:5]:
        print(other)
    print(f"replay it: python -m antiphon.testing.torture --replay {path}")
    return 1


def _print_draws(seeds: range, *, small: bool) -> int:
    counts = Counter(feature for seed in seeds for feature in features(draw(seed, small=small)))
    for feature, count in sorted(counts.items()):
        print(f"{count:6}  {feature}")
    return 0


def _replay(what: str, out: Path, *, small: bool) -> int:
    schedule = draw(int(what), small=small) if what.isdigit() else from_json(Path(what).read_bytes())
    tortured = Tortured(schedule)
    flaws, counts = judge(tortured.run())
    for flaw in flaws:
        print(flaw)
    if not flaws:
        print(f"nothing wrong; examined: {', '.join(f'{count} {name}' for name, count in sorted(counts.items()))}")
    folder = out / f"trace-{schedule.seed}"
    tortured.world.write_trace(folder)
    print(f"its trace lies in {folder}; its diagram: antiphon diagram {folder}")
    return 1 if flaws else 0


if __name__ == "__main__":
    sys.exit(main())
