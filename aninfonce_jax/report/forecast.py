import pathlib


def write_forecast(folder):
    return pathlib.Path(folder) / "compile.html"
