"""Prints the oldest version that setup.cfg allows of each requirement, as constraints for pip."""

import configparser

settings = configparser.ConfigParser()
settings.read("setup.cfg")
sections = [settings["options"]["install_requires"], *settings["options.extras_require"].values()]
for line in "\n".join(sections).split("\n"):
    # Extras have no place in a constraint, and the package that has them is bounded without.
    if ">=" in line and "[" not in line:
        print(line.replace(">=", "=="))
