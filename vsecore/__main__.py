"""What `vse` and `python -m vsecore` start: first what happens when they are stopped, then all imports."""

import sys

from vsecore import stopping


def main() -> None:
    """Run the command line."""
    stopping.stop_tidily()
    try:
        from vsecore import cli

        cli.main()
    except stopping.Stopped as stopped:
        print("vse: stopped", file=sys.stderr)
        raise SystemExit(stopped.code) from None


if __name__ == "__main__":
    main()
