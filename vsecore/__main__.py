"""Where `vse` and `python -m vsecore` start: they can be stopped tidily even while they still import."""

from vsecore import stopping


def main() -> None:
    stopping.stop_tidily()
    try:
        from vsecore import cli

        cli.main()
    except stopping.Stopped as stopped:
        stopping.end(int(stopped.code or 0))


if __name__ == "__main__":
    main()
