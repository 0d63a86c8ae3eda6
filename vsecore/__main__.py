"""What `vse` and `python -m vsecore` start: first what happens when they are stopped, then all imports."""

from vsecore import stopping


def main() -> None:
    """Run the command line."""
    stopping.stop_tidily()
    try:
        from vsecore import cli

        cli.main()
    except stopping.Stopped as stopped:
        stopping.end(int(stopped.code or 0))


if __name__ == "__main__":
    main()
